"""The gateway: a pipeline on TensorFlow's data service, served like any other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.nursery import Nursery

import infeed
from infeed.errors import (
    ConfigError,
    InvalidRequestError,
    ServerUnavailableError,
    SourceError,
    UserCodeError,
)
from infeed.registered import DatasetRequest
from infeed.transport import GrpcTransport
from infeed_server import Pipeline, Server, ServerOptions
from infeed_server.engines import remote
from infeed_server.engines.blocks import Kind
from infeed_server.engines.remote import ServiceDataset
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.spread import plan_spread
from infeed_server.runtime.options import ServiceOptions
from infeed_server.transforms import Map

SERVICE = """
import signal
import tensorflow as tf

service = tf.data.experimental.service
dispatcher = service.DispatchServer()
address = dispatcher.target.partition("//")[2]
config = service.WorkerConfig(
    address, worker_address="127.0.0.1:%port%", heartbeat_interval_ms=100
)
workers = [service.WorkerServer(config) for _ in range(2)]
print(address, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def dispatcher(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dispatcher with two workers, in a process that can be killed: a worker takes its time to
    stop."""
    folder = tmp_path_factory.mktemp("service")
    program = folder / "service.py"
    program.write_text(SERVICE)
    process = nursery.start(("python", str(program)), folder / "service", folder)
    yield process.read_line()
    process.kill()


def numbers(count: int = 40, **options: Any) -> Pipeline:
    arrays = {"x": np.arange(count), "name": np.array([str(i) for i in range(count)], object)}
    return parse({"source": {"arrays": arrays}, "batch": {"size": 4}, **options})


def counted() -> tf.data.Dataset:
    return tf.data.Dataset.range(10).map(lambda i: {"x": i})


def refuse_large(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    fine = tf.debugging.Assert(sample["x"] < 30, ["no", sample["x"]])
    with tf.control_dependencies([fine]):
        return {"x": tf.identity(sample["x"])}


def jpegs(folder: Path, photos: SimpleNamespace) -> Pipeline:
    """Eight photos, the fourth of which is none."""
    names = sorted(photos.labels)[:8]
    for name in names:
        (folder / name).write_bytes((photos.folder / name).read_bytes())
    (folder / names[3]).write_bytes(b"no jpeg")
    return parse(
        {
            "source": {"images": str(folder)},
            "transforms": [
                {"decode_image": {"field": "image"}},
                {"resize": {"field": "image", "size": [8, 8]}},
            ],
            "batch": {"size": 4},
            "on_error": "mask",
        }
    )


def server_of(dispatcher: str, pipelines: dict[str, Pipeline]) -> Server:
    options = ServerOptions("127.0.0.1:0", None, service=ServiceOptions(dispatcher))
    return Server(pipelines, options)


@pytest.fixture(scope="module")
def address(
    dispatcher: str, photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Of a server with all pipelines of these tests."""
    ids = parse({"source": {"dataset": counted}, "batch": {"size": 4, "remainder": "pad"}})
    pipelines = {
        "n": numbers(),
        "many": numbers(400),
        "ids": ids,
        "fails": numbers(transforms=[Map(function=refuse_large)]),
        "jpegs": jpegs(tmp_path_factory.mktemp("jpegs"), photos),
    }
    with server_of(dispatcher, pipelines) as server:
        yield str(server.address)


def test_every_sample_once_in_each_epoch(address: str) -> None:
    with infeed.connect(address, "n", epochs=3, batch_size=7, remainder="pad") as feed:
        seen: Counter[tuple[int, bytes]] = Counter()
        for batch in feed:
            assert batch["x"][batch.mask].tolist() == batch.sample_ids[batch.mask].tolist()
            seen.update(
                zip(batch["x"][batch.mask].tolist(), batch["name"][batch.mask], strict=True)
            )
    assert seen == {(i, str(i).encode()): 3 for i in range(40)}


def test_what_fills_no_batch_is_dropped_where_that_is_asked_for(address: str) -> None:
    with infeed.connect(address, "n", epochs=1, batch_size=7, remainder="drop") as feed:
        batches = list(feed)
    assert len(batches) == 5
    assert all(batch.mask.all() for batch in batches)


def test_ranks_share_one_consumer_and_end_together(address: str) -> None:
    """Two ranks of seven slots: two steps, and twelve samples that fill none."""
    options = {"epochs": 1, "batch_size": 7, "remainder": "drop"}
    feeds = [
        infeed.connect(address, "n", shard=infeed.Shard(rank, 2), **options) for rank in (0, 1)
    ]
    seen = Counter(int(x) for _ in range(2) for feed in feeds for x in next(feed)["x"])
    assert [next(feed, None) for feed in feeds] == [None, None]
    assert len(seen) == seen.total() == 28
    for feed in feeds:
        feed.close()


def test_feeds_of_one_job_share_its_samples(address: str) -> None:
    feeds = [infeed.connect(address, "many", epochs=1, job_name="shared") for _ in range(2)]
    seen: Counter[int] = Counter()
    for batch in [*feeds[0], *feeds[1]]:
        seen.update(batch["x"].tolist())
    assert seen == dict.fromkeys(range(400), 1)
    for feed in feeds:
        feed.close()


def test_it_does_not_resume(address: str) -> None:
    with infeed.connect(address, "n") as feed:
        assert feed.guarantee.resume == "none"
        assert feed.spec.sample_count is None
        next(feed)
        cursor = feed.state()
    with pytest.raises(infeed.CursorError, match="promises no order"):
        infeed.connect(address, "n", state=cursor)


def test_a_dataset_of_the_users_has_ids_that_count(address: str) -> None:
    with infeed.connect(address, "ids", epochs=1) as feed:
        batches = list(feed)
    assert sorted(x for batch in batches for x in batch["x"][batch.mask].tolist()) == list(
        range(10)
    )
    # The batch that is not full need not come last, and takes no more ids than it has samples.
    ids = [batch.sample_ids[batch.mask].tolist() for batch in batches]
    assert [number for some in ids for number in some] == list(range(10))
    assert all((batch.sample_ids[~batch.mask] == -1).all() for batch in batches)


def test_a_worker_that_fails_is_told(address: str) -> None:
    with infeed.connect(address, "fails", epochs=1) as feed, pytest.raises(UserCodeError) as told:
        list(feed)
    assert "a worker of TensorFlow's data service could not make a batch of 'fails'" in str(
        told.value
    )
    assert "on_error: mask" in str(told.value)


def test_a_job_that_has_ended_is_an_error(address: str) -> None:
    with infeed.connect(address, "n", epochs=1, job_name="done") as feed:
        assert len(list(feed)) == 10
    with (
        infeed.connect(address, "n", epochs=1, job_name="done") as feed,
        pytest.raises(InvalidRequestError, match="'done' gave no batch: it has ended already"),
    ):
        next(feed)


class FakeService:
    """A service whose readings give nothing, since it is gone."""

    address, compression, lost_workers = "127.0.0.1:1", "none", ("127.0.0.1:2",)

    def __init__(self) -> None:
        self.registered: list[str] = []
        self.gate = threading.Event()

    def register(self, dataset_id: str, *_: object) -> None:
        self.registered.append(dataset_id)

    def read(self, *_: object) -> tf.data.Dataset:
        spec = tf.TensorSpec([], tf.int64)
        return tf.data.Dataset.from_generator(
            lambda: iter([self.gate.wait()]), output_signature=spec
        )

    def require(self) -> None:
        raise SourceError("it has not answered for 120 s")


@pytest.fixture
def gone() -> Iterator[tuple[ServiceDataset, FakeService]]:
    plan = plan_spread("n", numbers(shuffle={"seed": 3}))
    service = FakeService()
    yield ServiceDataset(plan, service), service  # type: ignore[arg-type]
    service.gate.set()


def test_a_reading_ends_with_its_service(gone: tuple[ServiceDataset, FakeService]) -> None:
    kind = Kind(seed=0, slots=4, epochs=1)
    with pytest.raises(SourceError, match="has not answered for 120 s"):
        next(gone[0].read(kind))


def test_a_dataset_is_registered_before_anything_is_served(
    gone: tuple[ServiceDataset, FakeService],
) -> None:
    dataset, service = gone
    dataset.prepare()
    default = dataset.register(DatasetRequest("n"))
    assert service.registered == [default.dataset_id] * 2
    assert default.seed == 3
    assert default.lost_workers == ("127.0.0.1:2",)
    assert dataset.register(DatasetRequest("n", seed=0)).seed == 0


def test_errors_of_tensorflow_are_told_apart(gone: tuple[ServiceDataset, FakeService]) -> None:
    explain = gone[0].explain
    assert isinstance(explain(tf.errors.UnavailableError(None, None, "away")), SourceError)
    assert isinstance(explain(tf.errors.InvalidArgumentError(None, None, "bad")), UserCodeError)
    assert explain(ValueError("ours")) is None


def test_the_local_engine_has_neither_data_sets_nor_jobs() -> None:
    with Server({"n": numbers()}, ServerOptions("127.0.0.1:0", None)) as server:
        address = str(server.address)
        transport = GrpcTransport(address)
        with pytest.raises(InvalidRequestError, match=r"'n' has no data set .* tf-data-service"):
            transport.register_dataset(DatasetRequest("n"))
        transport.close()
        with (
            infeed.connect(address, "n", job_name="j") as feed,
            pytest.raises(InvalidRequestError, match="'n' has no jobs to take part in"),
        ):
            next(feed)


def test_what_is_registered(address: str, dispatcher: str) -> None:
    transport = GrpcTransport(address)
    one = transport.register_dataset(DatasetRequest("n"))
    assert one.dispatcher_address == dispatcher
    assert (one.batch_size, one.seed, one.may_mask) == (4, 0, False)
    assert one.tensorflow_version == tf.__version__
    assert transport.register_dataset(DatasetRequest("n")) == one
    padded = transport.register_dataset(DatasetRequest("n", epochs=1, remainder="pad"))
    assert padded.may_mask
    others = {
        transport.register_dataset(request).dataset_id
        for request in (
            DatasetRequest("n", seed=1),
            DatasetRequest("n", batch_size=5),
            DatasetRequest("n", epochs=2),
            DatasetRequest("n", compression="snappy"),
            DatasetRequest("n", shard_hint=True),
        )
    }
    assert len(others | {one.dataset_id, padded.dataset_id}) == 7
    names = "this server has: fails, ids, jpegs, many, n"
    with pytest.raises(infeed.PipelineNotFoundError, match=names):
        transport.register_dataset(DatasetRequest("m"))
    with pytest.raises(infeed.FingerprintError):
        transport.register_dataset(DatasetRequest("n", fingerprint="other"))
    for bad in (
        DatasetRequest("n", batch_size=41),
        DatasetRequest("n", seed=-1),
        DatasetRequest("n", epochs=-1),
    ):
        with pytest.raises(InvalidRequestError):
            transport.register_dataset(bad)
    transport.close()


def test_no_more_data_sets_than_a_dispatcher_should_keep(
    dispatcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MOST_DATASETS", 2)
    with server_of(dispatcher, {"n": numbers()}) as server:
        transport = GrpcTransport(str(server.address))
        transport.register_dataset(DatasetRequest("n", seed=5))
        with pytest.raises(InvalidRequestError, match="asked for in 2 ways"):
            transport.register_dataset(DatasetRequest("n", seed=6))
        transport.register_dataset(DatasetRequest("n", seed=5))
        transport.close()


def test_nobody_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    from infeed_server.cluster import service

    monkeypatch.setattr(service, "READY_SECONDS", 0.2)
    options = ServerOptions("127.0.0.1:0", None, service=ServiceOptions("127.0.0.1:1"))
    with pytest.raises(ServerUnavailableError, match=r"not ready after .* no dispatcher"):
        Server({"n": numbers()}, options)


def test_what_cannot_run_on_workers_is_refused_with_its_place(dispatcher: str) -> None:
    def python(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        x = tf.py_function(lambda value: value, [sample["x"]], tf.int64)
        return {"x": tf.ensure_shape(x, [])}

    options = ServerOptions("127.0.0.1:0", None, service=ServiceOptions(dispatcher))
    pipeline = numbers(transforms=[Map(function=python)])
    with pytest.raises(ConfigError, match=r"pipelines\.n\.transforms\[0\]\.map: .*--engine local"):
        Server({"n": pipeline}, options)


def test_jpegs_that_are_broken_are_masked_by_workers(address: str) -> None:
    with infeed.connect(address, "jpegs", epochs=1) as feed:
        kept = sorted(i for batch in feed for i in batch.sample_ids[batch.mask].tolist())
    assert kept == [0, 1, 2, 4, 5, 6, 7]
