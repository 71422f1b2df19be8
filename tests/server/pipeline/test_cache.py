"""The cache: each sample is made once, whoever asks, and the memory is known beforehand."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.errors import ConfigError
from infeed_server.pipeline.cache import BeforeCache, CachedSource, split_at_cache
from infeed_server.pipeline.load import parse
from infeed_server.sources import open_source

COUNT = 50


class Counting:
    """A function that notes each sample it is asked to make."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def note(x: tf.Tensor) -> tf.Tensor:
            with self._lock:
                self.made.append(int(x))
            return x * 10

        return {"y": tf.ensure_shape(tf.py_function(note, [sample["x"]], tf.int64), [])}


def cached(function: Any, limit_bytes: int = 1 << 20) -> CachedSource:
    pipeline = parse(
        {
            "source": {"arrays": {"x": np.arange(COUNT)}},
            "transforms": [{"map": {"function": function}}, "cache"],
        }
    )
    before, rest = split_at_cache(list(enumerate(pipeline.transforms)))
    assert before is not None
    assert not rest
    return CachedSource(
        open_source(pipeline.source), BeforeCache(before.steps, limit_bytes, before.place)
    )


def test_each_sample_is_made_once() -> None:
    counting = Counting()
    source = cached(counting)
    counting.made.clear()  # tracing may have called it
    rng = np.random.default_rng(0)
    for _ in range(30):
        indices = rng.integers(0, COUNT, 7)
        assert source.read(indices)["y"].tolist() == (indices * 10).tolist()
    assert sorted(counting.made) == sorted(set(counting.made))
    assert len(source) == COUNT
    assert source.provenance(3) == source.source.provenance(3)
    assert source.identity == source.source.identity


def test_many_readers_get_what_one_would() -> None:
    source = cached(Counting())
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


def test_a_sample_that_fails_is_not_kept() -> None:
    def odd(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        fits = tf.debugging.Assert(sample["x"] != 3, ["three"])
        with tf.control_dependencies([fits] if fits is not None else []):
            return {"y": sample["x"] * 10}

    source = cached(odd)
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError):
            source.read(np.array([2, 3, 4]))
        assert source.read(np.array([2, 4]))["y"].tolist() == [20, 40]


def test_memory_is_bounded_beforehand() -> None:
    with pytest.raises(
        ConfigError, match=r"^transforms\[1\].cache: 50 samples need 0 MiB, over lim"
    ):
        cached(Counting(), limit_bytes=COUNT * 8 - 1)
    cached(Counting(), limit_bytes=COUNT * 8)

    def text(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"t": tf.as_string(sample["x"])}

    with pytest.raises(ConfigError, match=r"^transforms\[1\].cache: field 't' holds byte strings"):
        cached(text)


def test_without_a_cache_all_steps_stay() -> None:
    pipeline = parse({"source": {"arrays": {"x": np.arange(3)}}, "transforms": []})
    assert split_at_cache(list(enumerate(pipeline.transforms))) == (None, [])
