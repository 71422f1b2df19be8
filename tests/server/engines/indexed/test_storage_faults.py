"""Tests of faults of storage: they are retried, then refuse the batch; no data changes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.load import parse
from infeed_server.runtime.engine_factory import build

COUNT = 12


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Images of one colour each: sample i has i; sample 5 is no image."""
    folder = tmp_path / "album"
    folder.mkdir()
    for number in range(COUNT):
        pixels = np.full((4, 4, 3), number, np.uint8)
        (folder / f"{number:02}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    (folder / "05.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`delays.on_retry` is called before a repeated attempt, instead of the wait."""
    delays = SimpleNamespace(on_retry=lambda: None)
    monkeypatch.setattr("infeed_server.storage.faults._sleep", lambda _: delays.on_retry())
    return delays


@pytest.fixture
def engine(album: Path, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def start(on_error: str, **options: Any) -> Engine:
        definition = {
            "source": {"images": str(album)},
            "transforms": [
                {"decode_image": {"field": "image"}},
                {"resize": {"field": "image", "size": [4, 4]}},
            ],
            "batch": {"size": 4},
            "on_error": on_error,
            "quarantine": str(tmp_path / "bad.jsonl"),
        }
        engines.append(build("album", parse({**definition, **options}), Monitor()))
        return engines[-1]

    yield start
    for item in engines:
        item.close()


def read(engine: Engine, start: int) -> HostBatch:
    session = engine.open(4, 0, Trainer())
    try:
        answer = session.submit(Request(0, start, 4, 4)).result(60)
        assert isinstance(answer, HostBatch)
        session.on_sent()
        return answer
    finally:
        session.close()


def content(batch: HostBatch) -> tuple[list[int], list[int]]:
    return batch.sample_ids.tolist(), batch.arrays["image"][:, 0, 0, 0].tolist()


def test_file_that_is_away_for_a_moment_changes_no_batch(
    engine: Any, album: Path, delays: SimpleNamespace
) -> None:
    served = engine("substitute")
    expected = content(read(served, 4))
    assert 5 not in expected[0]
    image, away = album / "06.png", album.parent / "away"
    image.rename(away)
    delays.on_retry = lambda: away.rename(image)
    assert content(read(served, 4)) == expected
    assert not away.exists()


@pytest.mark.parametrize("on_error", ["raise", "mask"])
def test_file_that_stays_away_refuses_its_batches_until_it_returns(
    engine: Any, album: Path, delays: SimpleNamespace, tmp_path: Path, on_error: str
) -> None:
    served = engine(on_error)
    image, away = album / "02.png", album.parent / "away"
    image.rename(away)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"cannot read .*02\.png: No such file.*refused"):
            read(served, 0)
    assert content(read(served, 8))[0] == [8, 9, 10, 11]
    away.rename(image)
    assert content(read(served, 0)) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert not (tmp_path / "bad.jsonl").exists()


def test_changed_file_refuses_its_batch(engine: Any, album: Path) -> None:
    served = engine("substitute")
    (album / "02.png").write_bytes(b"half of a new ima")
    with pytest.raises(SourceError, match=r"02\.png changed since it was opened"):
        read(served, 0)


@pytest.mark.parametrize("python", [False, True])
def test_fault_in_a_user_function_refuses_the_batch_until_it_passes(
    engine: Any, album: Path, delays: SimpleNamespace, tmp_path: Path, python: bool
) -> None:
    table = tmp_path / "table.txt"
    table.write_text("7")

    def read_text(_: tf.Tensor) -> str:
        return table.read_text()

    def add(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if python:
            text = tf.ensure_shape(tf.py_function(read_text, [0], tf.string), [])
        else:
            text = tf.io.read_file(str(table))
        return {"image": sample["image"] + tf.cast(tf.strings.to_number(text), tf.uint8)}

    steps = [{"decode_image": {"field": "image"}}, {"resize": {"field": "image", "size": [4, 4]}}]
    served = engine("substitute", transforms=[*steps, {"map": {"function": add}}])
    table.rename(tmp_path / "away")
    with pytest.raises(SourceError, match=r"cannot read sample \d+ .*(No such file|Errno 2)"):
        read(served, 0)
    delays.on_retry = lambda: (tmp_path / "away").rename(table)
    assert content(read(served, 0)) == ([0, 1, 2, 3], [7, 8, 9, 10])


def test_fault_that_comes_back_in_each_attempt_refuses_the_batch(engine: Any) -> None:
    def fail(_: tf.Tensor) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def add(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if tf.executing_eagerly():  # a sample alone, after its batch has failed
            return sample
        zero = tf.ensure_shape(tf.py_function(fail, [0], tf.int64), [])
        return {"image": sample["image"] + tf.cast(zero, tf.uint8)}

    steps = [{"decode_image": {"field": "image"}}, {"resize": {"field": "image", "size": [4, 4]}}]
    served = engine("substitute", transforms=[*steps, {"map": {"function": add}}])
    with pytest.raises(SourceError, match=r"storage fault recurred 2 times.*\[Errno 5\]"):
        read(served, 0)


def test_one_large_batch_is_read_ahead(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infeed_server.engines.indexed.batch_pipeline._READ_AHEAD_BYTES", 1)
    served = engine("mask")
    reading: list[int] = []
    most: list[int] = []
    source = served.plan.source
    original = source.read

    def counted(indices: Any) -> Any:
        reading.append(1)
        most.append(len(reading))
        try:
            return original(indices)
        finally:
            reading.pop()

    read(served, 0)
    monkeypatch.setattr(source, "read", counted)
    session = served.open(4, 0, Trainer())
    answers = [session.submit(Request(0, 4 * n, 4, 4)) for n in range(2)]
    assert [content(answer.result(60))[0][0] for answer in answers] == [0, 4]
    session.close()
    assert max(most) == 1
