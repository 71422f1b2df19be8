"""Tests of bad samples: errors, the quarantine log, substitutes that every server chooses alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed.shared.errors import SampleError
from infeed_server.engines.indexed import bad_samples
from infeed_server.engines.indexed.quarantine import QuarantineLog


def fails_on_3_17_and_18(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    def check(x: tf.Tensor) -> int:
        if int(x) in (3, 17, 18):
            raise KeyError(f"no entry for {int(x)}")
        return int(x) * 10

    value = tf.py_function(check, [sample["x"]], tf.int64)
    return {"x": sample["x"], "y": tf.ensure_shape(value, [])}


FAILING = [{"map": {"function": fails_on_3_17_and_18}}]


def test_raise_names_the_sample_with_the_users_traceback(
    serve: Any, numbers: Any, tmp_path: Path
) -> None:
    log = str(tmp_path / "bad.jsonl")
    server = serve({"n": numbers(transforms=FAILING, shuffle={"mode": "none"}, quarantine=log)})
    with infeed.connect(str(server.address), "n", batch_size=2) as feed:
        assert feed.next(60)["y"].tolist() == [0, 10]
        with pytest.raises(infeed.UserCodeError) as caught:
            feed.next(60)
    message = str(caught.value)
    assert "sample 3" in message
    assert "KeyError: 'no entry for 3'" in message
    assert 'raise KeyError(f"no entry for {int(x)}")' in message
    assert caught.value.metadata["sample_id"] == "3"
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    # Later batches, requested ahead, may have logged their bad samples too.
    assert lines[0]["sample_id"] == "3"
    assert lines[0]["action"] == "raise"


def test_other_batches_are_served_after_a_bad_one(serve: Any, numbers: Any) -> None:
    server = serve({"n": numbers(transforms=FAILING, shuffle={"mode": "none"})})
    failing = infeed.connect(str(server.address), "n", batch_size=2)
    with failing, pytest.raises(infeed.UserCodeError):
        list(failing)
    with infeed.connect(str(server.address), "n", batch_size=3) as feed:
        assert feed.next(60)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("action", ["substitute", "mask"])
def test_every_server_chooses_the_same_substitutes(
    serve: Any, numbers: Any, tmp_path: Path, action: str
) -> None:
    runs = []
    for number in range(2):
        log = tmp_path / f"bad-{number}.jsonl"
        server = serve({"n": numbers(transforms=FAILING, on_error=action, quarantine=str(log))})
        # The second server reads epoch 1 first: what it has seen before must not matter.
        batches = read_backwards(server) if number else read(server)
        runs.append({batch.start: batch for batch in batches})
        logged = [json.loads(line)["sample_id"] for line in log.read_text().splitlines()]
        assert sorted(logged) == ["17", "18", "3"]
    for start, batch in runs[0].items():
        other = runs[1][start]
        assert np.array_equal(batch.sample_ids, other.sample_ids)
        assert np.array_equal(batch["y"], other["y"])
        assert np.array_equal(batch.mask, other.mask)
        assert np.array_equal(batch["y"][batch.mask], batch["x"][batch.mask] * 10)
    masks = np.concatenate([batch.mask for batch in runs[0].values()])
    assert (~masks).sum() == (6 if action == "mask" else 0)
    ids = np.concatenate([batch.sample_ids for batch in runs[0].values()])
    assert not set(ids) & {3, 17, 18}


@pytest.mark.parametrize("action", ["substitute", "mask"])
def test_each_recent_bad_sample_is_listed_once_with_its_count(
    serve: Any, numbers: Any, action: str
) -> None:
    server = serve({"n": numbers(transforms=FAILING, on_error=action)})
    with infeed.connect(str(server.address), "n", batch_size=8, epochs=5) as feed:
        list(feed)
    recent = server.observer.status.bad_samples("n")
    assert sorted(each["sample_id"] for each in recent) == [3, 17, 18]
    # A sample is known to be bad after its first failure, but not to batches in progress.
    assert all(each["count"] >= 5 for each in recent)


def read(server: Any) -> list[infeed.Batch]:
    with infeed.connect(str(server.address), "n", batch_size=8, epochs=2) as feed:
        return list(feed)


def read_backwards(server: Any) -> list[infeed.Batch]:
    batches = []
    with infeed.connect(str(server.address), "n", batch_size=8, epochs=2) as feed:
        begin = feed.state()
    for step in reversed(range(2 * 40 // 8)):
        state = {**begin, "position": step * 8}
        with infeed.connect(str(server.address), "n", batch_size=8, epochs=2, state=state) as feed:
            batches.append(feed.next(60))
    return batches


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


def bad_sample(sample: int) -> SampleError:
    return SampleError(f"sample {sample} is bad", sample_id=sample, file="a.tfrecord", offset=12)


def test_quarantine_log_has_each_sample_once(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "bad.jsonl"
    log = QuarantineLog(str(file), "photos", "mask")
    for sample in (1, 2, 1):
        log.add(bad_sample(sample))
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


def test_bad_sample_without_a_line_in_the_log_is_counted(
    serve: Any, numbers: Any, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    def fails_for_two(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        bad = tf.debugging.assert_none_equal(sample["x"], tf.constant(2, tf.int64))
        with tf.control_dependencies([bad] if bad is not None else []):
            return {"x": tf.identity(sample["x"])}

    pipeline = numbers(
        source={"arrays": {"x": np.arange(8)}},
        transforms=[{"map": {"function": fails_for_two}}],
        on_error="substitute",
        quarantine=str(blocked / "bad.jsonl"),
    )
    server = serve({"n": pipeline})
    with infeed.connect(str(server.address), "n", batch_size=8, epochs=1) as feed:
        assert 2 not in feed.next(60).sample_ids
    server.observer.update()
    (shown,) = server.observer.status.to_json({})["pipelines"]
    assert shown["totals"]["quarantine_failures"] == 1
    name = "infeed_quarantine_failures_total"
    assert server.metrics.registry.get_sample_value(name, {"pipeline": "n"}) == 1
