"""The folder of a cache on disk: equal only where what it keeps is."""

from __future__ import annotations

import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.tfrecords import example, write_records

from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse

COUNT = 3


def scaled(sample: Any, by: int = 2) -> Any:
    return {"x": sample["x"] * by}


def edited(by: int, more: str = "") -> str:
    """Returns the name of a function whose module is written now."""
    code = f"def function(sample):\n    return {{'x': sample['x'] * {by}}}\n{more}\n"
    Path("edited_function.py").write_text(code)
    sys.modules.pop("edited_function", None)
    importlib.invalidate_caches()
    return "edited_function:function"


def python(function: Any, **options: Any) -> dict[str, Any]:
    return {"map": {"function": function, "python": True, **options}}


class Rows:
    """A data set of a user."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return {"x": np.int64(10 * index)}


ROWS = {"python": Rows(), "identity": "rows"}
NUMBERS = {"x": np.arange(1, COUNT + 1)}
"""Transform → arrays, and options that make different samples of them."""


def cases() -> Iterator[tuple[str, Any, list[Any]]]:
    """Yields what is changed, the source, and the transforms."""
    numbers = {"arrays": NUMBERS}
    for depth in (5, 6):
        yield "an option", numbers, [{"one_hot": {"field": "x", "depth": depth}}]
        yield "a function", numbers, [{"map": functools.partial(scaled, by=depth)}]
    for by in (2, 3):
        yield "a function behind a python source", ROWS, [python(edited(by))]
        yield "functions in Python", numbers, [python(edited(by))]
        yield "functions in Python", numbers, [python(functools.partial(scaled, by=by))]
        declared = edited(by, f"function.fingerprint = 'v{by}'")
        yield "functions in Python", numbers, [python(declared)]
        yield "functions in Python", numbers, [python(Scale(by), identity=f"v{by}")]
        yield "functions in Python", numbers, [python(edited(by)), python(scaled)]
        yield "functions in both", numbers, [python(scaled), {"map": edited(by)}]
    yield "functions in Python", numbers, [python(edited(2), fields={"x": "int64"})]
    yield "no function", numbers, []
    yield "no function", ROWS, []
    yield "another source", {"arrays": {"x": np.arange(COUNT)}}, []


class Scale:
    """A function with state, which declares its identity."""

    def __init__(self, by: int) -> None:
        self._state = [object(), by]

    def __call__(self, sample: Any) -> Any:
        return {"x": sample["x"] * self._state[1]}


def of_files(folder: Path) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yields cases of sources whose options choose what is read."""
    (folder / "images" / "a").mkdir(parents=True)
    for number in range(COUNT):
        png = tf.io.encode_png(np.full((2, 2, 3), number, np.uint8)).numpy()
        (folder / "images" / "a" / f"{number}.png").write_bytes(png)
    for name, label in (("one", 1), ("two", 2)):
        rows = "".join(f"a/{number}.png,{label}\n" for number in range(COUNT))
        (folder / f"{name}.csv").write_text("file,label\n" + rows)
    write_records(
        folder / "x.tfrecord",
        [example({"a": [number], "b": [2 * number]}) for number in range(COUNT)],
    )
    images, records = {"images": str(folder / "images")}, {"tfrecord": str(folder / "x.tfrecord")}
    for options in ({}, {"labels": "folders"}, {"labels": str(folder / "one.csv")},
                    {"labels": str(folder / "two.csv")}, {"identity": "modified"}):  # fmt: skip
        yield "images", {**images, **options}, []
    for features in ({"a": "int64"}, {"b": "int64"}, {"a": "int64", "b": "int64"},
                     {"a": {"type": "int64", "shape": [1]}}):  # fmt: skip
        yield "records", {**records, "features": features}, []


def kept(source: Any, transforms: list[Any], folder: Path) -> tuple[str, Any]:
    """Returns the name of a cache's folder, and what it has kept of all samples."""
    # A function behind it keeps all transforms at the server, and makes fields of a fixed size.
    behind = [{"cache": {"store": "disk", "path": str(folder)}}, {"map": sizes}]
    definition = parse({"source": source, "transforms": [*transforms, *behind], "batch": 1})
    with closing(plan_indexed("p", definition, definition.open()).source) as cached:
        columns = cached.read(np.arange(COUNT))
        made = [
            cached.parse({name: tf.constant(column[row]) for name, column in columns.items()})
            for row in range(COUNT)
        ]
    samples = [{name: value.numpy() for name, value in sample.items()} for sample in made]
    described = [(name, value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value
                 for sample in samples for name, value in sample.items()]  # fmt: skip
    return cached.identity, repr(described)


def sizes(sample: Any) -> Any:
    return {"n": tf.add_n([tf.size(value) for value in sample.values()])}


def test_equal_folders_keep_equal_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is made in a folder of its own, so that none could have another's samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found: dict[str, set[Any]] = defaultdict(set)
    names: dict[str, list[str]] = defaultdict(list)
    for number, (what, source, transforms) in enumerate([*cases(), *of_files(tmp_path)]):
        folder, samples = kept(source, transforms, tmp_path / str(number))
        found[folder].add(samples)
        names[folder].append(f"{what} {transforms}")
    assert [names[folder] for folder, samples in found.items() if len(samples) > 1] == []
