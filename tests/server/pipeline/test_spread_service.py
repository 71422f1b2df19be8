"""The spread datasets on TensorFlow's own dispatcher and workers, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import service_config_pb2 as config

from infeed_server.pipeline.load import parse
from infeed_server.pipeline.spread import SpreadPlan, Variant, plan_spread

N = 40

Read = Callable[..., list[tuple[dict[str, Any], dict[str, Any]]]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a dispatcher that has two workers, whose places it knows, as HINT needs."""
    service = tf.data.experimental.service
    places = ["localhost:%port%"] * 2
    dispatcher = service.DispatchServer(
        config.DispatcherConfig(protocol="grpc", worker_addresses=places)
    )
    found = dispatcher.target.partition("//")[2]
    # A worker that stops waits for its next heartbeat, which a dispatcher that is gone holds up.
    quick = service.WorkerConfig(found, heartbeat_interval_ms=100, dispatcher_timeout_ms=1000)
    workers = [service.WorkerServer(quick) for _ in places]
    yield found
    for worker in workers:
        worker._stop()
    dispatcher._stop()


@pytest.fixture
def read(address: str) -> Read:
    """`read(plan, variant, policy)`: all batches of a new job."""

    def run(
        plan: SpreadPlan, variant: Variant, policy: str = "DYNAMIC", **options: Any
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        service = tf.data.experimental.service
        dataset = plan.dataset(variant)
        name = service.register_dataset(
            address, dataset, None, dataset_id=plan.dataset_id(variant, "NONE")
        )
        assert name == plan.dataset_id(variant, "NONE")
        batches = service.from_dataset_id(
            getattr(service.ShardingPolicy, policy), address, name, dataset.element_spec, **options
        )
        return list(batches.take(60).as_numpy_iterator())

    return run


def squared(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {**sample, "y": sample["x"] ** 2}


def numbers(**options: Any) -> SpreadPlan:
    defaults = {
        "source": {"arrays": {"x": np.arange(N, dtype=np.int64)}},
        "shuffle": {"seed": 5},
        "transforms": [{"map": {"function": squared}}],
        "batch": {"size": 6},
    }
    return plan_spread("numbers", parse({**defaults, **options}))


@pytest.mark.parametrize(("policy", "epochs"), [("DYNAMIC", 1), ("DYNAMIC", 3), ("HINT", 2)])
def test_every_sample_comes_once_an_epoch(read: Read, policy: str, epochs: int) -> None:
    plan = numbers()
    batches = read(plan, Variant(7, 9, epochs, "pad", hint=policy == "HINT"), policy)
    ids = np.concatenate([about["sample_ids"][about["mask"]] for _, about in batches])
    assert Counter(ids.tolist()) == dict.fromkeys(range(N), epochs)
    starts = sorted(int(about["start"]) for _, about in batches)
    assert starts == list(range(0, N * epochs, 7))
    for fields, about in batches:
        assert fields["x"].shape == (7,)
        assert np.array_equal(fields["x"][about["mask"]], about["sample_ids"][about["mask"]])
        assert np.array_equal(fields["y"], fields["x"] ** 2)


def test_a_dropped_remainder_is_dropped_once(read: Read) -> None:
    batches = read(numbers(), Variant(7, 9, 2, "drop"))
    assert sorted(int(about["start"]) for _, about in batches) == list(range(0, 77, 7))
    assert all(about["mask"].all() for _, about in batches)


def test_all_workers_make_the_same_bits(read: Read) -> None:
    """Without sharding each worker gives everything."""
    batches = read(numbers(), Variant(7, 9, 1, "pad"), "OFF")
    starts = Counter(int(about["start"]) for _, about in batches)
    assert starts == dict.fromkeys(range(0, N, 7), 2)
    by_start: dict[int, Any] = {}
    for fields, about in batches:
        first = by_start.setdefault(int(about["start"]), fields)
        assert np.array_equal(first["x"], fields["x"])


def test_coordinated_reads_of_what_never_ends(read: Read) -> None:
    options = {"job_name": "together", "num_consumers": 1, "consumer_index": 0}
    batches = read(numbers(), Variant(7, 9, 0, "drop"), "OFF", **options)
    assert len(batches) == 60


def of_dataset(function: Callable[[], tf.data.Dataset], **options: Any) -> SpreadPlan:
    return plan_spread("mine", parse({"source": {"dataset": function}, **options}))


@pytest.mark.parametrize(("policy", "epochs"), [("DYNAMIC", 1), ("DYNAMIC", 2), ("HINT", 2)])
def test_a_users_dataset(read: Read, policy: str, epochs: int) -> None:
    plan = of_dataset(lambda: tf.data.Dataset.range(N).map(lambda x: {"x": x}), batch={"size": 6})
    batches = read(plan, Variant(7, 0, epochs, "pad", hint=policy == "HINT"), policy)
    seen = np.concatenate([fields["x"][about["mask"]] for fields, about in batches])
    assert Counter(seen.tolist()) == dict.fromkeys(range(N), epochs)
    assert all(fields["x"].shape == (7,) for fields, _ in batches)


def test_a_users_batches(read: Read) -> None:
    plan = of_dataset(lambda: tf.data.Dataset.range(N).batch(6).map(lambda x: {"x": x}))
    batches = read(plan, Variant(6, 0, 1, "pad"))
    seen = np.concatenate([fields["x"][about["mask"]] for fields, about in batches])
    assert sorted(seen.tolist()) == list(range(N))
