"""Tests of bad samples: errors, the quarantine log, substitutes that every server chooses alike."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.datasets import jpeg
from tests.harness.tfrecords import example, write_records

import infeed
from infeed.shared.errors import SampleError
from infeed_server.engines.base import HostBatch, Request, Trainer
from infeed_server.engines.indexed import bad_samples
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.examination import find_bad_sample
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.monitor import Monitor
from infeed_server.order import RunOrder, SampleOrder
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.picture_steps import fuse_decode_and_crop
from infeed_server.runtime.engine_factory import build


def fails_on_3_17_and_18(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    def check(x: tf.Tensor) -> int:
        if int(x) in (3, 17, 18):
            raise KeyError(f"no entry for {int(x)}")
        return int(x) * 10

    value = tf.py_function(check, [sample["x"]], tf.int64)
    return {"x": sample["x"], "y": tf.ensure_shape(value, [])}


FAILING = [{"map": {"function": fails_on_3_17_and_18}}]


def test_each_recent_bad_sample_is_listed_once_with_its_count(serve: Any, numbers: Any) -> None:
    server = serve({"n": numbers(transforms=FAILING, on_error="mask")})
    with infeed.connect(str(server.address), "n", batch_size=8, epochs=5) as feed:
        list(feed)
    recent = server.instrument.observer.bad_samples("n")
    assert sorted(item["sample_id"] for item in recent) == [3, 17, 18]
    # A sample is known to be bad after its first failure, but not to batches in progress.
    assert all(item["count"] >= 5 for item in recent)


def test_each_good_sample_is_made_once(numbers: Any, tmp_path: Path) -> None:
    made: Counter[int] = Counter()

    def count(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def check(x: tf.Tensor) -> int:
            made[int(x)] += 1
            if int(x) in (3, 17, 18):
                raise KeyError(f"no entry for {int(x)}")
            return int(x)

        return {"x": tf.ensure_shape(tf.py_function(check, [sample["x"]], tf.int64), [])}

    pipeline = numbers(
        transforms=[{"map": {"function": count}}],
        on_error="substitute",
        quarantine=str(tmp_path / "bad.jsonl"),
    )
    with closing(build("n", pipeline, Monitor())) as engine:
        session = engine.open(8, 0, Trainer())
        made.clear()
        delivered: Counter[int] = Counter()
        for start in range(0, 40, 8):
            batch = session.submit(Request(5, start, 8, 8)).result(60)
            assert isinstance(batch, HostBatch)
            assert batch.arrays["x"].tolist() == batch.sample_ids.tolist()
            delivered.update(batch.sample_ids.tolist())
            session.on_sent()
        session.close()
    assert {sample: made[sample] for sample in delivered} == delivered


def test_source_without_a_good_sample_fails(
    serve: Any, numbers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_samples, "_MAX_SUBSTITUTIONS", 9)

    def always_fails(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        bad = tf.debugging.assert_less(sample["x"], tf.constant(0, tf.int64), "never good")
        with tf.control_dependencies([bad] if bad is not None else []):
            return {"x": tf.identity(sample["x"])}

    pipeline = numbers(
        source={"arrays": {"x": np.arange(4)}},
        transforms=[{"map": {"function": always_fails}}],
        on_error="substitute",
        quarantine=str(tmp_path / "bad.jsonl"),
    )
    server = serve({"n": pipeline})
    feed = infeed.connect(str(server.address), "n")
    with feed, pytest.raises(infeed.SampleError, match="no good sample found in 9 draws"):
        feed.next(120)


@pytest.mark.parametrize("action", ["raise", "mask"])
def test_an_error_whose_text_is_not_utf8_concerns_its_sample(
    serve: Any, tmp_path: Path, action: str
) -> None:
    records = [example({"x": [0]}), b"\xff\xff", example({"x": [2]})]
    write_records(tmp_path / "x.tfrecord", records)
    source = {"tfrecord": str(tmp_path / "x.tfrecord"), "features": {"x": "int64"}}
    text = {"source": source, "shuffle": {"mode": "none"}, "batch": 1, "on_error": action}
    server = serve({"n": parse(text)})
    with infeed.connect(str(server.address), "n", epochs=1) as feed:
        assert next(feed).sample_ids.tolist() == [0]
        if action == "raise":
            with pytest.raises(SampleError, match="sample 1 "):
                next(feed)
        else:
            assert [batch.sample_ids.tolist() for batch in feed] == [[-1], [2]]


def test_an_order_that_fails_is_the_error_shown(
    serve: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve({"n": numbers(on_error="mask")})

    def fail(*_: Any) -> Any:
        raise LookupError("no such part")

    monkeypatch.setattr(SampleOrder, "visited", fail)
    feed = infeed.connect(str(server.address), "n")
    with feed, pytest.raises(infeed.ServerError, match="LookupError: no such part"):
        next(feed)


def bad_sample(sample: int) -> SampleError:
    return SampleError(f"sample {sample} is bad", sample_id=sample, file="a.tfrecord", offset=12)


def test_quarantine_log_has_each_sample_once(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "bad.jsonl"
    quarantine = Quarantine(str(file), "photos", "mask")
    task = BatchTask(
        Request(1, 0, 3, 3), RunOrder.of(SampleOrder(3, 1)), MemoryBudget(1).open_quota("p")
    )
    task.assign_samples()
    for slot in (1, 2, 1):
        assert quarantine.add(bad_sample(slot), task, int(np.flatnonzero(task.index == slot)[0]))
    blocked = Quarantine(str(file / "bad.jsonl"), "photos", "mask")
    assert not blocked.add(bad_sample(1), task, 0), "its log cannot be written"
    assert [(bad["sample_id"], bad["count"]) for bad in quarantine.to_json()] == [(1, 2), (2, 1)]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["sample_id"] for line in lines] == ["1", "2"]
    assert (
        lines[0].items()
        >= {
            "pipeline": "photos",
            "action": "mask",
            "file": "a.tfrecord",
            "offset": "12",
            "reason": "BAD_SAMPLE",
            "error": "sample 1 is bad",
        }.items()
    )


@pytest.mark.parametrize("crop", [[], [{"center_crop": {"field": "image", "size": [2, 2]}}]])
def test_a_truncated_jpeg_is_called_so(tmp_path: Path, crop: Any) -> None:
    (tmp_path / "0.jpg").write_bytes(jpeg(0)[:-9])
    transforms = [{"decode_image": {"field": "image"}}, *crop]
    pipeline = parse({"source": {"images": str(tmp_path)}, "transforms": transforms, "batch": 1})
    steps = fuse_decode_and_crop([*enumerate(pipeline.transforms)])
    failure = find_bad_sample(pipeline.open(), steps, 0, np.zeros(2, np.int64))
    assert failure is not None
    assert "the JPEG is truncated: its last marker is missing: " in str(failure.error)
