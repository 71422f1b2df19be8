"""Tests of `pipeline/sample_cache.py`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_cache import CachedSource, CachePrefix, split_at_cache
from infeed_server.sources import open_source

COUNT = 50


class CountingMap:
    """A `map` function that records each sample it processes."""

    def __init__(self) -> None:
        self.samples: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def record(x: tf.Tensor) -> tf.Tensor:
            with self._lock:
                self.samples.append(int(x))
            return x * 10

        return {"y": tf.ensure_shape(tf.py_function(record, [sample["x"]], tf.int64), [])}


def cached_source(function: Any, limit_bytes: int = 1 << 20) -> CachedSource:
    pipeline = parse(
        {
            "source": {"arrays": {"x": np.arange(COUNT)}},
            "transforms": [{"map": {"function": function}}, "cache"],
        }
    )
    prefix, rest = split_at_cache(list(enumerate(pipeline.transforms)))
    assert prefix is not None
    assert not rest
    return CachedSource(
        open_source(pipeline.source), CachePrefix(prefix.steps, limit_bytes, prefix.path)
    )


def test_each_sample_is_computed_once() -> None:
    counting = CountingMap()
    source = cached_source(counting)
    counting.samples.clear()  # tracing may have called it
    rng = np.random.default_rng(0)
    for _ in range(30):
        indices = rng.integers(0, COUNT, 7)
        assert source.read(indices)["y"].tolist() == (indices * 10).tolist()
    assert sorted(counting.samples) == sorted(set(counting.samples))
    assert len(source) == COUNT
    assert source.provenance(3) == source.source.provenance(3)
    assert source.identity == source.source.identity


def test_concurrent_readers_get_the_same_samples() -> None:
    source = cached_source(CountingMap())
    wrong: list[Any] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            indices = rng.integers(0, COUNT, 5)
            rows = source.read(indices)["y"]
            if rows.tolist() != (indices * 10).tolist():
                wrong.append((indices, rows))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_sample_that_failed_is_computed_again() -> None:
    failing = [3]

    def times_ten(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def compute(x: tf.Tensor) -> tf.Tensor:
            if int(x) in failing:
                raise ValueError(int(x))
            return x * 10

        return {"y": tf.ensure_shape(tf.py_function(compute, [sample["x"]], tf.int64), [])}

    source = cached_source(times_ten)
    with pytest.raises(tf.errors.InvalidArgumentError):
        source.read(np.array([2, 3, 4]))
    failing.clear()
    assert source.read(np.array([2, 3, 4]))["y"].tolist() == [20, 30, 40]


def test_memory_is_checked_in_advance() -> None:
    with pytest.raises(
        ConfigError, match=r"^transforms\[1\].cache: 50 samples need 0 MiB, over lim"
    ):
        cached_source(CountingMap(), limit_bytes=COUNT * 8 - 1)
    cached_source(CountingMap(), limit_bytes=COUNT * 8)

    def text(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"t": tf.as_string(sample["x"])}

    with pytest.raises(ConfigError, match=r"^transforms\[1\].cache: field 't' holds byte strings"):
        cached_source(text)
