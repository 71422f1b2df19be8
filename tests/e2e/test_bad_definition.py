"""Errors of definitions, each with its line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed
from infeed_server.pipeline.load import load

FUNCTIONS = """
import tensorflow as tf

def numbers():
    return tf.data.Dataset.range(10)

def nothing():
    return "nothing"

def dataset_that_raises():
    raise KeyError("no such data")

def raises(sample):
    return helper(sample)

def helper(sample):
    raise RuntimeError("not today")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("definitions")
    image = np.zeros((10, 8, 8, 3), np.uint8)
    np.savez(folder / "data.npz", x=np.arange(10), image=image)
    (folder / "photos").mkdir()
    (folder / "photos" / "a.jpg").write_bytes(b"")
    (folder / "labels.csv").write_text("file,label\na.jpg,1\nb.jpg,2\n")
    (folder / "bad_functions.py").write_text(FUNCTIONS)
    (folder / "bad_module.py").write_text("import json\n\nTABLE = {}['nothing']\n")
    return folder


def test_stderr_of_a_wrong_option_is_one_line(command_line: Any, folder: Path) -> None:
    text = definition(transforms="[{resize: {field: imge, size: [4, 4]}}]")
    assert command_line.serve_error(text, folder) == (
        "pipelines.yaml:6: pipelines.one.transforms[0].resize: no field 'imge' (did you mean "
        "'image'?); available: image, x"
    )


def definition(
    source: str = "{arrays: data.npz}", transforms: str = "[]", rest: str = "batch: {size: 4}"
) -> str:
    """Returns one pipeline: its source in line 4, options in 5, transforms in 6."""
    return f"""
pipelines:
  one:
    source: {source}
    {rest}
    transforms: {transforms}
"""


def arrays(**changes: str) -> str:
    return definition("{arrays: HERE/data.npz}", **changes)


def dataset(name: str, **changes: str) -> str:
    return definition("{dataset: bad_functions:" + name + "}", **changes)


RANDOM_FIRST = "[{random_flip_left_right: {field: image}}, cache]"
RESIZE = "[{resize: {field: x, size: [4, 4]}}]"
CAST = "[{cast: {field: x, dtype: int8}}]"
BATCH, GLOBAL = "batch: {size: 2}", "shuffle: {mode: global}"
LABELLED = definition("{images: HERE/photos, labels: HERE/labels.csv}")
BAD_DEFINITIONS = [
    ("pipelines: {}\n", "Config", ":1: pipelines: expected at least one pipeline"),
    (arrays(transforms=RANDOM_FIRST), "Config", r":6: .*transforms\[1\].cache: random_flip_le"),
    (arrays(transforms="[cache, cache]"), "Config", r":6: .*transforms\[1\].cache: there is a"),
    (arrays(transforms="[{map: bad_module:f}]"), "UserCode", r":6: (.|\n)*KeyError: 'nothing'$"),
    (dataset("numbers", transforms=RESIZE), "Config", r":6: .*resize: cannot follow a dataset s"),
    (dataset("numbers", transforms=CAST), "Config", r":6: .*cast: no field 'x'; available: feat"),
    (dataset("numbers", rest="on_error: raise"), "Config", ":3: .*batch: missing, but the"),
    (dataset("numbers", rest=f"on_error: mask\n    {BATCH}"), "Config", ":5: .*index to mask; "),
    (dataset("numbers", rest=f"{GLOBAL}\n    {BATCH}"), "Config", ":5: .*has its own order"),
    (dataset("nothing"), "Config", ":4: .*source.dataset: bad_functions:nothing returned a str"),
    (dataset("nowhere"), "Config", ":4: .*source.dataset: .*has no 'nowhere'; it has: "),
    (dataset("dataset_that_raises"), "UserCode", r":4: (.|\n)*KeyError: 'no such data'$"),
    (LABELLED, "Source", ":4: .*labels.csv names files that are not images .*line 3: 'b.jpg'"),
]


@pytest.mark.parametrize(("text", "error", "pattern"), BAD_DEFINITIONS)
def test_error_names_line_and_key(
    serve: Any, folder: Path, monkeypatch: Any, text: str, error: str, pattern: str
) -> None:
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(getattr(infeed, f"{error}Error"), match="pipelines.yaml" + pattern):
        serve(text.replace("HERE", str(folder)))


def test_name_without_a_pipeline_is_refused(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(infeed.InfeedError, match="neither an existing YAML file nor of the form"):
        load("nowhere")
