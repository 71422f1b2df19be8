"""Tests of the indexed engine through a real server: exact batches, padding, several streams."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import infeed
from infeed_server.engines.base import Request, Trainer
from infeed_server.engines.indexed.batch_pipeline import BatchPipeline

N = 40


@pytest.fixture(scope="module")
def server(shared: Any, numbers: Any) -> Any:
    """A server that all tests of this module may read."""
    return shared({"numbers": numbers()})


def test_padding_is_zero_and_masked(server: Any) -> None:
    feeds = [
        infeed.connect(
            str(server.address),
            "numbers",
            batch_size=7,
            shard=infeed.Shard(rank, 2),
            epochs=1,
            remainder="pad",
        )
        for rank in range(2)
    ]
    batches = [batch for feed in feeds for batch in feed]
    for feed in feeds:
        feed.close()
    assert len(batches) == 6
    seen = np.concatenate([batch.sample_ids[batch.mask] for batch in batches])
    assert sorted(seen) == list(range(N))
    for batch in batches:
        assert batch["twice"].shape == (7,)
        assert (batch.sample_ids[~batch.mask] == -1).all()
        assert (batch["twice"][~batch.mask] == 0).all()


def test_finish_on_the_server_gives_the_same_bits(serve: Any, numbers: Any) -> None:
    arrays = {"x": np.arange(N * 3, dtype=np.uint8).reshape(N, 3), "y": np.arange(N) % 5}
    pipeline = numbers(
        source={"arrays": arrays},
        transforms=[
            {"normalize": {"field": "x", "scale": 255.0, "mean": [0.4, 0.5, 0.6], "std": [0.2]}},
            {"one_hot": {"field": "y", "depth": 5}},
        ],
    )
    server = serve({"n": pipeline})
    runs = []
    for finish in ("trainer", "server"):
        with infeed.connect(
            str(server.address), "n", epochs=1, batch_size=7, remainder="pad", finish=finish
        ) as feed:
            assert [field.data_type for field in feed.spec.wire_spec] == ["uint8", "int64"]
            runs.append(list(feed))
    for one, other in zip(*runs, strict=True):
        for name in ("x", "y"):
            assert one[name].dtype == np.float32
            assert one[name].tobytes() == other[name].tobytes()
    assert (runs[0][-1]["x"][~runs[0][-1].mask] == 0).all()


def test_failed_pipeline_fails_all_its_requests_and_is_replaced(
    serve: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting, being read, or in the graph: none is left without an answer."""
    server = serve({"n": numbers()})
    shifts = iter([1])
    failed = threading.Event()
    on_rows, read = BatchPipeline._on_rows, BatchPipeline._read

    def another_once(pipeline: BatchPipeline, slots: Any, index: Any, arrays: Any) -> None:
        for shift in shifts:
            failed.set()
            index = index + shift
        on_rows(pipeline, slots, index, arrays)

    def read_first(pipeline: BatchPipeline, task: Any) -> Any:
        if task.request.start:
            failed.wait(60)
        return read(pipeline, task)

    monkeypatch.setattr(BatchPipeline, "_on_rows", another_once)
    monkeypatch.setattr(BatchPipeline, "_read", read_first)

    def submit(count: int) -> list[Any]:
        session = server._engines["n"].open(4, 0, Trainer())
        session.set_batch_bytes(64)  # so that many are taken at a time
        return [session.submit(Request(0, 4 * step, 4, 4)) for step in range(count)]

    for answer in submit(20):
        with pytest.raises(infeed.InfeedError, match=r"returned a batch other|shutting down"):
            answer.result(60)
    (answer,) = submit(1)
    assert answer.result(60).mask.all()
