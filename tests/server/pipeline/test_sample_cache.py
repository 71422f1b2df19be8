"""Tests of `pipeline/sample_cache.py`."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline import sample_cache
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_cache import CachedSource, take_cache
from infeed_server.sources.registry import open_source

COUNT = 50

Open = Callable[..., CachedSource]


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


@pytest.fixture(params=["memory", "disk"])
def cached(request: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a source of the numbers 0 to 49 behind a function and a cache."""
    with ExitStack() as stack:

        def make(function: Any, **options: Any) -> CachedSource:
            cache = {"store": request.param, "path": str(tmp_path / "cache"), **options}
            pipeline = parse(
                {
                    "source": {"arrays": {"x": np.arange(COUNT)}},
                    "transforms": [{"map": {"function": function}}, {"cache": cache}],
                }
            )
            steps, place = take_cache(pipeline.transforms)
            assert place is not None
            source = CachedSource(open_source(pipeline.source), steps, place, "numbers")
            stack.callback(source.close)
            return source

        yield make


def test_each_sample_is_computed_once(cached: Open) -> None:
    counting = CountingMap()
    source = cached(counting)
    counting.samples.clear()  # tracing may have called it
    rng = np.random.default_rng(0)
    for _ in range(30):
        indices = rng.integers(0, COUNT, 7)
        assert source.read(indices)["y"].tolist() == (indices * 10).tolist()
    assert sorted(counting.samples) == sorted(set(counting.samples))
    assert source.misses == len(counting.samples)
    assert source.hits > source.misses
    assert len(source) == COUNT
    assert source.provenance(3) == source.source.provenance(3)


def test_sample_that_failed_is_computed_again(cached: Open) -> None:
    failing = [3]

    def times_ten(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def compute(x: tf.Tensor) -> tf.Tensor:
            if int(x) in failing:
                raise ValueError(int(x))
            return x * 10

        return {"y": tf.ensure_shape(tf.py_function(compute, [sample["x"]], tf.int64), [])}

    source = cached(times_ten)
    with pytest.raises(tf.errors.InvalidArgumentError):
        source.read(np.array([2, 3, 4]))
    failing.clear()
    assert source.read(np.array([2, 3, 4]))["y"].tolist() == [20, 30, 40]


def large(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Random bytes, which cannot be compressed, of a size that varies."""
    key = tf.stack([sample["x"], tf.zeros_like(sample["x"])])
    size = 60_000 + tf.cast(sample["x"], tf.int32) * 100
    noise = tf.random.stateless_uniform([size], key, 0, 256, tf.int32)
    return {"n": tf.cast(noise, tf.uint8), "text": tf.as_string(sample["x"])}


def test_what_fits_is_kept_whatever_its_size(cached: Open) -> None:
    source, reads = cached(large, budget=1 << 20), []
    for _ in range(2):
        for start in range(0, COUNT, 10):
            columns = source.read(np.arange(start, start + 10))
            reads.append({name: column.tolist() for name, column in columns.items()})
        assert [text for read in reads[:5] for text in read["text"]] == [
            str(number).encode() for number in range(COUNT)
        ]
    assert reads[:5] == reads[5:]
    assert 12 <= source.hits <= 17  # of some 17 samples in 1 MiB
    fields = source.parse({name: column[3] for name, column in source.read(np.arange(9)).items()})
    assert fields["n"].shape == [60_300]
    assert fields["n"].dtype == tf.uint8


def of_all_kinds(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Fields that are kept as they are, packed, as bytes, and serialized."""
    x, row = sample["x"], sample["row"]
    return {
        "row": row + 1,
        "flags": tf.math.equal(row % 7, tf.cast(x, row.dtype)),
        "words": tf.cast(row, tf.uint32),
        "number": x,
        "texts": tf.as_string(row[:3]),
        "varies": row[: x + 1],
    }


def of_fixed_sizes(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {**sample, "varies": tf.reduce_sum(sample["varies"])}


def test_samples_that_do_not_fit_stay_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(COUNT * 4000, dtype=np.float32).reshape(COUNT, 4000)
    definition = {
        "source": {"arrays": {"x": np.arange(COUNT), "row": rows}},
        "transforms": [
            {"map": {"function": of_all_kinds}},
            {"cache": {"store": "memory", "budget": 1 << 20}},
            {"map": {"function": of_fixed_sizes}},
        ],
        "batch": 8,
    }
    pipeline = parse(definition)
    plain = plan_indexed("p", pipeline, open_source(pipeline.source), cached=False)
    plan = plan_indexed("p", pipeline, open_source(pipeline.source))
    assert plan.cache is not None
    assert plan.spec == plain.spec
    reads: list[int] = []
    monitored = plan.cache.source.read

    def read(indices: Any) -> Any:
        reads.extend(indices.tolist())
        return monitored(indices)

    plan.cache.source.read = read  # type: ignore[method-assign]
    run, run_plain = graph_of(plan), graph_of(plain)
    indices = np.random.default_rng(0).permutation(COUNT)
    for number in range(8):
        if number == 7:  # it is full
            monkeypatch.setattr(plan.cache, "_run", None)
        reads.clear()
        for part in np.split(indices, 2):
            made, expected = run(part), run_plain(part)
            for row in range(len(part)):
                assert made[row].keys() == expected[row].keys()
                for name, value in expected[row].items():
                    np.testing.assert_array_equal(made[row][name], value, err_msg=name)
    assert not plan.cache._store.takes(0)
    kept = len(plan.cache._store._records)  # type: ignore[attr-defined]
    assert 15 <= kept < 40
    assert len(reads) == COUNT - kept
    assert plan.cache.hits + plan.cache.misses == 8 * COUNT


def graph_of(plan: IndexedPlan) -> Callable[[Any], list[dict[str, Any]]]:
    """Returns what reads samples and runs them through the plan's graph."""
    function = plan.sample_function()

    def run(indices: Any) -> list[dict[str, Any]]:
        columns = plan.source.read(indices)
        assert columns.keys() == plan.source.columns.keys()
        rows = tf.data.Dataset.from_tensor_slices(columns)
        samples = rows.map(lambda row: function(row, tf.zeros([2], tf.int64)))
        return list(samples.as_numpy_iterator())

    return run


def test_changed_file_of_the_same_size_begins_a_new_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, value in (("a.png", 1), ("b.png", 2)):
        image = tf.io.encode_png(np.full((4, 4, 3), value, np.uint8)).numpy()
        (folder / name).write_bytes(image.ljust(100, b"\0"))  # of one size
    cache = {"store": "disk", "path": str(tmp_path / "cache")}

    def read() -> tuple[list[int], int]:
        transforms = [{"decode_image": {"field": "image"}}, {"cache": cache}]
        pipeline = parse({"source": {"images": str(folder)}, "transforms": transforms})
        steps, place = take_cache(pipeline.transforms)
        assert place is not None
        source = CachedSource(open_source(pipeline.source), steps, place, "images")
        columns = source.read(np.arange(2))
        samples = [source.parse({"image": x}) for x in columns["image"]]
        source.close()
        return [int(sample["image"][0, 0, 0]) for sample in samples], source.misses

    assert read() == ([1, 2], 2)
    assert read() == ([1, 2], 0)
    (folder / "a.png").write_bytes((folder / "b.png").read_bytes())
    assert read() == ([2, 2], 2)
    monkeypatch.setattr(sample_cache, "VERSION", 0)  # of another format
    assert read() == ([2, 2], 2)


def test_full_disk_leaves_the_samples_uncached(
    cached: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    source = cached(CountingMap(), store="disk", path=str(tmp_path / "cache"))
    assert f"{tmp_path}/cache" in caplog.text
    assert "is not used: No space left on device; free some space" in caplog.text
    for _ in range(2):
        assert source.read(np.arange(COUNT))["y"].tolist() == [10 * n for n in range(COUNT)]
    assert (source.hits, source.misses) == (0, 2 * COUNT)


def test_folder_that_cannot_be_written_is_refused(cached: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^transforms\[1\].cache: cannot use the cache .*file"):
        cached(CountingMap(), store="disk", path=str(tmp_path / "file"))
