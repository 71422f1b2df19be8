"""Tests of the graphs on TensorFlow's dispatcher and workers, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import service_config_pb2 as config

from infeed_server.pipeline.load import parse
from infeed_service.graph import DataServicePlan, Variant, plan_data_service

N = 40

Read = Callable[..., list[tuple[dict[str, Any], dict[str, Any]]]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a dispatcher that is configured with two workers, as HINT requires."""
    service = tf.data.experimental.service
    worker_addresses = ["localhost:%port%"] * 2
    dispatcher = service.DispatchServer(
        config.DispatcherConfig(protocol="grpc", worker_addresses=worker_addresses)
    )
    target = dispatcher.target.partition("//")[2]
    # A stopping worker waits for its next heartbeat, which a stopped dispatcher delays.
    options = service.WorkerConfig(target, heartbeat_interval_ms=100, dispatcher_timeout_ms=1000)
    workers = [service.WorkerServer(options) for _ in worker_addresses]
    yield target
    for worker in workers:
        worker._stop()
    dispatcher._stop()


@pytest.fixture
def read(address: str) -> Read:
    """Reads all batches of a new job: `read(plan, variant, policy)`."""

    def run(
        plan: DataServicePlan, variant: Variant, policy: str = "DYNAMIC", **options: Any
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


def numbers(**options: Any) -> DataServicePlan:
    defaults = {
        "source": {"arrays": {"x": np.arange(N, dtype=np.int64)}},
        "shuffle": {"seed": 5},
        "transforms": [{"map": {"function": squared}}],
        "batch": {"size": 6},
    }
    return plan_data_service("numbers", parse({**defaults, **options}))


@pytest.mark.parametrize(("policy", "epochs"), [("DYNAMIC", 3), ("HINT", 2)])
def test_every_sample_arrives_once_an_epoch(read: Read, policy: str, epochs: int) -> None:
    plan = numbers()
    batches = read(plan, Variant(7, 9, epochs, "pad", shard_hint=policy == "HINT"), policy)
    ids = np.concatenate([metadata["sample_ids"][metadata["mask"]] for _, metadata in batches])
    assert Counter(ids.tolist()) == dict.fromkeys(range(N), epochs)
    starts = sorted(int(metadata["start"]) for _, metadata in batches)
    assert starts == list(range(0, N * epochs, 7))
    for fields, metadata in batches:
        assert fields["x"].shape == (7,)
        assert np.array_equal(
            fields["x"][metadata["mask"]], metadata["sample_ids"][metadata["mask"]]
        )
        assert np.array_equal(fields["y"], fields["x"] ** 2)


def of_dataset(function: Callable[[], tf.data.Dataset], **options: Any) -> DataServicePlan:
    return plan_data_service("mine", parse({"source": {"dataset": function}, **options}))


@pytest.mark.parametrize("policy", ["DYNAMIC", "HINT"])
def test_user_dataset_is_sharded(read: Read, policy: str) -> None:
    plan = of_dataset(lambda: tf.data.Dataset.range(N).map(lambda x: {"x": x}), batch={"size": 6})
    batches = read(plan, Variant(7, 0, 2, "pad", shard_hint=policy == "HINT"), policy)
    values = np.concatenate([fields["x"][metadata["mask"]] for fields, metadata in batches])
    assert Counter(values.tolist()) == dict.fromkeys(range(N), 2)
    assert all(fields["x"].shape == (7,) for fields, _ in batches)
