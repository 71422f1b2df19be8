"""Fixtures of the tests of sources: data files, written by TensorFlow and NumPy, not by infeed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tests.harness import samples


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache: a folder of this test, not created yet."""
    folder = tmp_path / "user-cache"
    monkeypatch.setenv("INFEED_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def retry_delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays before repeated reads, which take no time."""
    delays: list[float] = []
    monkeypatch.setattr("infeed_server.storage.faults._sleep", delays.append)
    return delays


@pytest.fixture
def write_records(tmp_path: Path) -> Callable[..., Path]:
    """`write_records(name, [bytes, ...])` writes a TFRecord file and returns its path."""

    def write(name: str, records: Sequence[bytes], compression: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in records:
                writer.write(record)
        return path

    return write


@pytest.fixture
def example() -> Callable[..., bytes]:
    """`example(name=values, ...)` returns a serialized tf.train.Example."""

    def feature(values: Any) -> tf.train.Feature:
        values = values if isinstance(values, list) else [values]
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def make(**features: Any) -> bytes:
        named = {name: feature(values) for name, values in features.items()}
        serialized: bytes = tf.train.Example(
            features=tf.train.Features(feature=named)
        ).SerializeToString()
        return serialized

    return make


@pytest.fixture
def parse() -> Callable[..., Any]:
    """`parse(source, index)` returns one sample's fields, through a tf.data graph as a server."""

    return samples.parse
