"""Tests of `pipeline/load.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from infeed.shared.errors import ConfigError, SourceError, UserCodeError
from infeed_server import Pipeline
from infeed_server.pipeline import load

GOOD = """
# Two of them.
pipelines:
  first:
    source: {arrays: data/x.npz}
    batch: {size: 2}
    quarantine: bad/first.jsonl
  second:
    source:
      images: /elsewhere/photos
    transforms:
      - decode_image: {field: image}
      - resize:
          field: image
          size: [4, 4]
    batch: {size: 8}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "p.yaml").write_text(GOOD)
    return str(tmp_path / "p.yaml")


def test_paths_are_relative_to_the_file(file: str, tmp_path: Path) -> None:
    pipelines = load.load(file)
    assert list(pipelines) == ["first", "second"]
    assert pipelines["first"].source.arrays == str(tmp_path / "data/x.npz")  # type: ignore[union-attr]
    assert pipelines["first"].quarantine == str(tmp_path / "bad/first.jsonl")
    assert pipelines["second"].source.images == "/elsewhere/photos"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "error", "location"),
    [
        (
            "first",
            ConfigError("2 is too few", at=("batch", "size")),
            "{}:6: pipelines.first.batch.size: 2 is",
        ),
        ("first", ConfigError("Everything: is wrong"), "{}:4: pipelines.first: Everything: is"),
        ("first", SourceError("no file: x"), "{}:5: pipelines.first.source: no file: x"),
        (
            "second",
            UserCodeError("f raised\nTraceback", at=("transforms", 0, "map")),
            "{}:12: pipelines.second.transforms[0].map: f raised\nTraceback",
        ),
    ],
)
def test_errors_are_located(file: str, name: str, error: Any, location: str) -> None:
    pipelines = load.load(file)
    with pytest.raises(type(error)) as caught, load.located(pipelines, name):
        raise error
    assert caught.value is error
    assert str(error).startswith(location.format(file))
    assert error.message == str(error)


def test_parse_lists_every_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        load.parse({"source": {"arrays": "x.npz"}, "batch": {"size": 0}, "on_error": "ignore"})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "batch.size",
        "on_error",
    ]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: Any) -> str:
    (tmp_path / "pipelines_for_load.py").write_text("""
import numpy as np
from infeed_server import Pipeline

one = Pipeline(source={"arrays": {"x": np.arange(3)}}, batch={"size": 1})
several = {"a": one, "b": one}
wrong = {"a": one, "b": 5}
empty = {}

class Inner:
    pipeline = one

def build():
    return several

def fail():
    raise LookupError("no data today")
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pipelines_for_load", raising=False)
    return "pipelines_for_load"


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        ("one", ["one"]),
        ("Inner.pipeline", ["pipeline"]),
        ("several", ["a", "b"]),
        ("build", ["a", "b"]),
    ],
)
def test_loads_python_objects(module: str, attribute: str, names: list[str]) -> None:
    pipelines = load.load(f"{module}:{attribute}")
    assert list(pipelines) == names
    assert all(isinstance(pipeline, Pipeline) for pipeline in pipelines.values())


@pytest.mark.parametrize("attribute", ["wrong", "empty"])
def test_invalid_python_object_is_refused(module: str, attribute: str) -> None:
    with pytest.raises(ConfigError, match="must be a Pipeline, a mapping of names to Pipelines"):
        load.load(f"{module}:{attribute}")


def test_error_of_a_function_has_the_users_frames(module: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        load.load(f"{module}:fail")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{module}:fail raised LookupError:"
    assert lines[-1] == "LookupError: no data today"
    assert len([line for line in lines if line.startswith("  File ")]) == 1
