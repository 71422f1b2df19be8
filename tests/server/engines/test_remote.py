"""The gateway: a pipeline on TensorFlow's data service, served like any other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed.errors import ConfigError, InvalidRequestError, ServerUnavailableError, UserCodeError
from infeed.registered import DatasetRequest
from infeed.transport import GrpcTransport
from infeed_server import Pipeline, Server, ServerOptions
from infeed_server.engines import remote
from infeed_server.pipeline.load import parse
from infeed_server.runtime.options import ServiceOptions

Serve = Callable[..., str]


SERVICE = """
import time
import tensorflow as tf

service = tf.data.experimental.service
dispatcher = service.DispatchServer()
address = dispatcher.target.partition("//")[2]
config = service.WorkerConfig(
    address, worker_address="127.0.0.1:%port%", heartbeat_interval_ms=100
)
workers = [service.WorkerServer(config) for _ in range(2)]
print(address, flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[str]:
    """A dispatcher with two workers, in a process that can be killed: a worker takes its time to
    stop."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def serve(dispatcher: str) -> Iterator[Serve]:
    """Serves a pipeline named `n` and gives the address."""
    servers: list[Server] = []

    def start(pipeline: Pipeline) -> str:
        options = ServerOptions("127.0.0.1:0", None, service=ServiceOptions(dispatcher))
        servers.append(Server({"n": pipeline}, options))
        servers[-1].start()
        return str(servers[-1].address)

    yield start
    for server in servers:
        server.stop(0)


def numbers(count: int = 40, **options: Any) -> Pipeline:
    arrays = {"x": np.arange(count), "name": np.array([str(i) for i in range(count)], object)}
    return parse({"source": {"arrays": arrays}, "batch": {"size": 4}, **options})


def test_every_sample_once_in_each_epoch(serve: Serve) -> None:
    with infeed.connect(serve(numbers()), "n", epochs=3, batch_size=7, remainder="pad") as feed:
        seen: Counter[tuple[int, bytes]] = Counter()
        for batch in feed:
            assert batch["x"][batch.mask].tolist() == batch.sample_ids[batch.mask].tolist()
            seen.update(
                zip(batch["x"][batch.mask].tolist(), batch["name"][batch.mask], strict=True)
            )
    assert seen == {(i, str(i).encode()): 3 for i in range(40)}


def test_what_fills_no_batch_is_dropped_where_that_is_asked_for(serve: Serve) -> None:
    with infeed.connect(serve(numbers()), "n", epochs=1, batch_size=7, remainder="drop") as feed:
        batches = list(feed)
    assert len(batches) == 5
    assert all(batch.mask.all() for batch in batches)


def test_ranks_share_one_consumer(serve: Serve) -> None:
    address = serve(numbers(32))
    feeds = [
        infeed.connect(address, "n", epochs=1, shard=infeed.Shard(rank, 2)) for rank in range(2)
    ]
    seen = Counter(int(x) for _ in range(4) for feed in feeds for x in next(feed)["x"])
    assert [next(feed, None) for feed in feeds] == [None, None]
    assert seen == dict.fromkeys(range(32), 1)
    for feed in feeds:
        feed.close()


def test_feeds_of_one_job_share_its_samples(serve: Serve) -> None:
    address = serve(numbers(400))
    feeds = [infeed.connect(address, "n", epochs=1, job_name="shared") for _ in range(2)]
    seen: Counter[int] = Counter()
    for batch in [*feeds[0], *feeds[1]]:
        seen.update(batch["x"].tolist())
    assert seen == dict.fromkeys(range(400), 1)
    for feed in feeds:
        feed.close()


def test_it_does_not_resume(serve: Serve) -> None:
    address = serve(numbers())
    with infeed.connect(address, "n") as feed:
        assert feed.guarantee.resume == "none"
        assert feed.spec.sample_count is None
        next(feed)
        cursor = feed.state()
    with pytest.raises(infeed.CursorError, match="promises no order"):
        infeed.connect(address, "n", state=cursor)


def test_a_dataset_of_the_users_has_ids_that_count(serve: Serve) -> None:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(10).map(lambda i: {"x": i})

    pipeline = parse({"source": {"dataset": make}, "batch": {"size": 4, "remainder": "pad"}})
    with infeed.connect(serve(pipeline), "n", epochs=1) as feed:
        batches = list(feed)
    assert sorted(x for batch in batches for x in batch["x"][batch.mask].tolist()) == list(
        range(10)
    )
    # The batch that is not full need not come last, and takes no more ids than it has samples.
    ids = [batch.sample_ids[batch.mask].tolist() for batch in batches]
    assert [number for some in ids for number in some] == list(range(10))
    assert all((batch.sample_ids[~batch.mask] == -1).all() for batch in batches)


def test_a_worker_that_fails_is_told(serve: Serve) -> None:
    def refuse(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        fine = tf.debugging.Assert(sample["x"] < 30, ["no", sample["x"]])
        with tf.control_dependencies([fine]):
            return {"x": tf.identity(sample["x"])}

    from infeed_server.transforms import Map

    address = serve(numbers(transforms=[Map(function=refuse)]))
    with infeed.connect(address, "n", epochs=1) as feed, pytest.raises(UserCodeError) as told:
        list(feed)
    assert "a worker of TensorFlow's data service could not make a batch of 'n'" in str(told.value)
    assert "on_error: mask" in str(told.value)


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


def test_what_is_registered(serve: Serve, dispatcher: str) -> None:
    transport = GrpcTransport(serve(numbers()))
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
    with pytest.raises(infeed.PipelineNotFoundError, match="this server has: n"):
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
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MOST_DATASETS", 2)
    transport = GrpcTransport(serve(numbers()))
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


def test_a_service_that_was_joined_is_looked_at_for_as_long_as_it_is_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it said when it was joined is soon too old to go by."""
    from infeed_server.cluster import service

    monkeypatch.setattr(service, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(service, "GONE_SECONDS", 1.5)

    def slow(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        x = tf.random.stateless_uniform([800, 800], [1, 2])
        for _ in range(10):
            x = tf.linalg.matmul(x, x) / 1000
        return {"x": sample["x"] + tf.cast(tf.reduce_sum(x) * 0, tf.int64)}

    from infeed_server.transforms import Map

    address = serve(numbers(8, transforms=[Map(function=slow)]))
    with infeed.connect(address, "n", epochs=1, batch_size=8) as feed:
        time.sleep(2)
        assert sorted(next(feed)["x"].tolist()) == list(range(8))


def test_what_cannot_run_on_workers_is_refused_with_its_place(dispatcher: str) -> None:
    from infeed_server.transforms import Map

    def python(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        x = tf.py_function(lambda value: value, [sample["x"]], tf.int64)
        return {"x": tf.ensure_shape(x, [])}

    options = ServerOptions("127.0.0.1:0", None, service=ServiceOptions(dispatcher))
    pipeline = numbers(transforms=[Map(function=python)])
    with pytest.raises(ConfigError, match=r"pipelines\.n\.transforms\[0\]\.map: .*--engine local"):
        Server({"n": pipeline}, options)


def test_jpegs_that_are_broken_are_masked_by_workers(
    serve: Serve, tmp_path: Path, photos: SimpleNamespace
) -> None:
    names = sorted(photos.labels)[:8]
    for name in names:
        (tmp_path / name).write_bytes((photos.folder / name).read_bytes())
    (tmp_path / names[3]).write_bytes(b"no jpeg")
    pipeline = parse(
        {
            "source": {"images": str(tmp_path)},
            "transforms": [
                {"decode_image": {"field": "image"}},
                {"resize": {"field": "image", "size": [8, 8]}},
            ],
            "batch": {"size": 4},
            "on_error": "mask",
        }
    )
    with infeed.connect(serve(pipeline), "n", epochs=1) as feed:
        kept = sorted(i for batch in feed for i in batch.sample_ids[batch.mask].tolist())
    assert kept == [0, 1, 2, 4, 5, 6, 7]
