"""Tests of the gateway: pipelines on TensorFlow's data service, served by a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.nursery import Nursery

import infeed
import infeed.tensorflow
from infeed.rpc.channel import GrpcTransport
from infeed.shared.errors import (
    InvalidRequestError,
    ServerError,
    SourceError,
    UserCodeError,
)
from infeed_python.map import Map
from infeed_server import Pipeline, Server, ServerOptions
from infeed_server.pipeline.load import parse
from infeed_service.dataset import DatasetRequest, register
from infeed_service.engine import open_service
from infeed_service.gateway.backend import DataServiceBackend
from infeed_service.graph import plan_data_service
from infeed_service.graph.readers import FILE_CHANGED
from infeed_service.options import ServiceOptions

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
    """A dispatcher with two workers in a process to be killed, since workers stop slowly."""
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
    check = tf.debugging.Assert(sample["x"] < 30, ["no", sample["x"]])
    with tf.control_dependencies([check]):
        return {"x": tf.identity(sample["x"])}


def server_of(dispatcher: str, pipelines: dict[str, Pipeline]) -> Server:
    options = ServerOptions(
        "127.0.0.1:0", None, engine=partial(open_service, ServiceOptions(dispatcher=dispatcher))
    )
    return Server(pipelines, options)


@pytest.fixture(scope="module")
def address(dispatcher: str) -> Iterator[str]:
    """The address of a server with all pipelines of these tests."""
    ids = parse({"source": {"dataset": counted}, "batch": {"size": 4, "remainder": "pad"}})
    pipelines = {
        "n": numbers(),
        "ids": ids,
        "fails": numbers(transforms=[Map(function=refuse_large)]),
    }
    with server_of(dispatcher, pipelines) as server:
        yield str(server.address)


def test_every_sample_arrives_once_an_epoch(address: str) -> None:
    with infeed.connect(address, "n", epochs=3, batch_size=7, remainder="pad") as feed:
        delivered: Counter[tuple[int, bytes]] = Counter()
        for batch in feed:
            assert batch["x"][batch.mask].tolist() == batch.sample_ids[batch.mask].tolist()
            delivered.update(
                zip(batch["x"][batch.mask].tolist(), batch["name"][batch.mask], strict=True)
            )
    assert delivered == {(i, str(i).encode()): 3 for i in range(40)}


def test_consumers_of_a_job_share_every_sample_once(address: str) -> None:
    """A feed and a reader of the workers, which prefetches."""
    options: Any = {"job_name": "shared", "epochs": 16}
    dataset = infeed.tensorflow.distribute(address, "n", sample_ids=True, label=None, **options)
    with infeed.connect(address, "n", prefetch_bytes=1, **options) as feed:
        batches, elements = [next(feed).sample_ids], iter(dataset)
        batches.append(next(elements)["sample_ids"].numpy())
        batches += [batch.sample_ids for batch in feed]
        batches += [element["sample_ids"].numpy() for element in elements]
    assert Counter(np.concatenate(batches).tolist()) == dict.fromkeys(range(40), 16)


def test_ranks_share_one_consumer_and_end_together(address: str) -> None:
    """Two ranks of seven slots: two steps, and twelve samples that do not fill a step."""
    options = {"epochs": 1, "batch_size": 7, "remainder": "drop"}
    feeds = [
        infeed.connect(address, "n", shard=infeed.Shard(rank, 2), **options) for rank in (0, 1)
    ]
    delivered = Counter(int(x) for _ in range(2) for feed in feeds for x in next(feed)["x"])
    assert [next(feed, None) for feed in feeds] == [None, None]
    assert len(delivered) == delivered.total() == 28
    for feed in feeds:
        feed.close()


def test_feed_does_not_resume(address: str) -> None:
    with infeed.connect(address, "n") as feed:
        assert feed.guarantee.resume == "none"
        assert feed.spec.sample_count is None
        next(feed)
        cursor = feed.state()
    with pytest.raises(infeed.CursorError, match="guarantees no order"):
        infeed.connect(address, "n", state=cursor)


def test_failure_in_a_worker_is_an_error(address: str) -> None:
    with infeed.connect(address, "fails", epochs=1) as feed, pytest.raises(UserCodeError) as raised:
        list(feed)
    assert "a worker of TensorFlow's data service could not make a batch of 'fails'" in str(
        raised.value
    )
    assert "on_error: mask" in str(raised.value)


def test_ended_job_is_an_error(address: str) -> None:
    with infeed.connect(address, "n", epochs=1, job_name="done") as feed:
        assert len(list(feed)) == 10
    with (
        infeed.connect(address, "n", epochs=1, job_name="done") as feed,
        pytest.raises(InvalidRequestError, match="'done' gave no batch: it has alread") as caught,
    ):
        next(feed)
    assert caught.value.metadata == {"job_name": "done"}


class FakeClient:
    """A client that keeps the ids that are registered."""

    address, compression, lost_workers = "127.0.0.1:1", "none", ("127.0.0.1:2",)

    def __init__(self) -> None:
        self.registered: list[str] = []

    def register(self, dataset_id: str, *_: object) -> None:
        self.registered.append(dataset_id)


@pytest.fixture
def fake() -> tuple[DataServiceBackend, FakeClient]:
    client: Any = FakeClient()
    plan = plan_data_service("n", numbers(shuffle={"seed": 3}))
    return DataServiceBackend(plan, client), client


def test_defaults_are_the_pipelines(fake: tuple[DataServiceBackend, FakeClient]) -> None:
    backend, client = fake
    default = backend.register(DatasetRequest("n"))
    assert client.registered == [default.dataset_id]
    assert default.seed == 3
    assert default.lost_workers == ("127.0.0.1:2",)
    assert backend.register(DatasetRequest("n", seed=0)).seed == 0


def test_tensorflow_errors_are_mapped(fake: tuple[DataServiceBackend, FakeClient]) -> None:
    explain = fake[0].explain
    for fault in (
        tf.errors.UnavailableError(None, None, "away"),
        tf.errors.NotFoundError(None, None, "/data/a.jpg; No such file or directory"),
        tf.errors.FailedPreconditionError(None, None, "/data/a.jpg; Is a directory"),
        tf.errors.InvalidArgumentError(
            None, None, f"assertion failed: [{FILE_CHANGED}] [/data/a.jpg] [9] [12]"
        ),
    ):
        error = explain(fault)
        assert isinstance(error, SourceError)
        assert str(error).endswith(f"makes no more batches of 'n': {fault.message}")
        assert error.metadata == {"pipeline": "n"}
    error = explain(tf.errors.InvalidArgumentError(None, None, "bad"))
    assert isinstance(error, UserCodeError)
    assert error.metadata == {"pipeline": "n"}
    full = tf.errors.ResourceExhaustedError(None, None, "journal_0; No space left on device")
    error = explain(full)
    assert isinstance(error, ServerError)
    assert str(error).endswith("not enough memory or disk space for 'n': " + full.message)
    assert error.metadata == {"target": fake[1].address, "pipeline": "n"}


def test_local_engine_has_neither_data_sets_nor_jobs() -> None:
    with Server({"n": numbers()}, ServerOptions("127.0.0.1:0", None)) as server:
        address = str(server.address)
        transport = GrpcTransport(address)
        with pytest.raises(
            InvalidRequestError, match=r"'n' has no data set .* with another --engine"
        ):
            register(transport, DatasetRequest("n"))
        transport.close()
        with (
            infeed.connect(address, "n", job_name="j") as feed,
            pytest.raises(InvalidRequestError, match="'n' has no jobs to join"),
        ):
            next(feed)
