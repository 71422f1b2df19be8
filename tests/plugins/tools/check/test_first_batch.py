"""First batches: all that a server or trainer would refuse is a problem with its line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.harness.datasets import jpeg

from infeed_formats.arrays.source import ArrayReader
from infeed_server.pipeline.load import parse_yaml
from infeed_tools.check import first_batch
from infeed_tools.check.definitions import file_problems
from infeed_tools.check.first_batch import make_first_batch

NEVER = threading.Event()
"""Set at the end of the tests, so that no thread outlives them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("first")
    (folder / "photos").mkdir()
    for number in range(3):
        (folder / "photos" / f"{number}.jpg").write_bytes(jpeg(number))
    (folder / "photos" / "bad.jpg").write_bytes(b"not an image")
    np.savez(folder / "x.npz", x=np.arange(8))
    boxes = np.tile(np.float32([3, 4, 8, 9]), (4, 1, 1))
    np.savez(folder / "boxes.npz", image=np.zeros((4, 9, 9, 3), np.uint8), boxes=boxes)
    (folder / "modules_of_first_batch.py").write_text(
        "import numpy as np, tensorflow as tf\n"
        "from tests.plugins.tools.check.test_first_batch import NEVER\n\n"
        "class Rows:\n"
        "    def __init__(self):\n"
        "        self.open_file = lambda: None\n"
        "    __len__ = lambda self: 4\n"
        "    __getitem__ = lambda self, index: np.arange(4)[index]\n\n"
        "def hanging():\n"
        "    NEVER.wait()\n"
        "    return tf.data.Dataset.range(4)\n\n"
        "def numbers():\n"
        "    return tf.data.Dataset.range(4).map(lambda n: {'n': n})\n\n"
        "def same(sample):\n"
        "    return sample\n"
    )
    yield folder
    NEVER.set()


def problem(folder: Path, text: str, *, with_bad_samples: bool = True) -> str:
    """Returns the problem of a pipeline that passes the static checks; empty if none."""
    file = folder / "p.yaml"
    file.write_text(f"pipelines:\n  p:\n    {text}\n")
    pipelines = parse_yaml(str(file))
    assert file_problems(pipelines) == []
    found = make_first_batch(
        pipelines, "p", lambda done, total: None, with_bad_samples=with_bad_samples
    )
    return "" if found.problem is None else str(found.problem).removeprefix(f"{file}:")


BOXES = "source: {arrays: boxes.npz}\n    batch: 2\n    targets: {boxes: {boxes: "
PHOTOS = (
    "source: {images: photos}\n    batch: {size: 2}\n    on_error: substitute\n    transforms: "
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PHOTOS + "[decode_image: {field: image}]",
            "6: pipelines.p.transforms: field 'image' ends with the shape [?, ?, 3], which varies",
        ),
        (
            PHOTOS + "[decode_image: {field: imgae}]",
            "6: pipelines.p.transforms[0].decode_image: no field 'imgae' (did you mean 'image'?);",
        ),
        (
            "source: {python: modules_of_first_batch:Rows}\n    batch: {size: 2}",
            "3: pipelines.p.source.python: modules_of_first_batch:Rows has no identity: it ",
        ),
        (
            "source: {arrays: x.npz}\n    batch: 2\n    transforms: "  # noqa: ISC004
            "[cache, {map: {function: 'modules_of_first_batch:same', python: true}}]",
            "5: pipelines.p.transforms[1].map.python: a function in Python must precede all othe",
        ),
        ("source: {arrays: x.npz}", "2: pipelines.p.batch: missing; add for example batch: {size"),
        (
            "source: {arrays: x.npz}\n    batch: {size: 9}",
            "4: pipelines.p.batch.size: 9 is larger than the data set, which has 8 samples",
        ),
        (
            BOXES + "{normalized: true, pad: 2}}}",
            "5: pipelines.p.targets.boxes: values of 3 to 9 are pixels; omit normalized",
        ),
    ],
)
def test_what_a_server_refuses_is_a_problem(folder: Path, text: str, expected: str) -> None:
    assert problem(folder, text).startswith(expected), problem(folder, text)


@pytest.mark.parametrize(
    "text",
    [
        "source: {arrays: x.npz}\n    batch: {size: 9, remainder: pad}",
        PHOTOS + "[decode_image: {field: image}, resize: {field: image, size: [4, 4]}]",
        "source: {arrays: x.npz}\n    batch: 2",
        "source: {dataset: modules_of_first_batch:numbers}\n    batch: 2",
    ],
)
def test_what_is_served_has_no_problem_and_leaves_no_log(folder: Path, text: str) -> None:
    before = set(folder.rglob("*")) | set(Path.cwd().glob("quarantine*"))
    assert problem(folder, text) == ""
    after = set(folder.rglob("*")) | set(Path.cwd().glob("quarantine*"))
    assert {path for path in after - before if "__pycache__" not in path.parts} <= {
        folder / "p.yaml"
    }


def test_bad_sample_of_the_first_batch_is_left_to_a_scan(folder: Path) -> None:
    text = (
        PHOTOS + "[decode_image: {field: image}, resize: {field: image, size: [4, 4]}]"
    ).replace("substitute", "raise")
    text = text.replace("size: 2", "size: 4")
    assert "bad.jpg" in problem(folder, text)
    assert problem(folder, text, with_bad_samples=False) == ""


def test_dataset_that_waits_forever_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_batch, "DATASET_TIMEOUT_SECONDS", 0.1)
    found = problem(folder, "source: {dataset: modules_of_first_batch:hanging}\n    batch: 2")
    assert found.startswith("3: pipelines.p.source.dataset: no first batch within 0.1 seconds; ")


def test_a_source_that_reads_other_columns_than_it_declares(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrayReader, "read", lambda _, indices: {"x": indices.astype(">i8")})
    found = problem(folder, "source: {arrays: x.npz}\n    batch: {size: 2}", with_bad_samples=False)
    assert found.startswith("3: pipelines.p.source: the source 'arrays' of infeed ")
    assert ": its read returned the column 'x' as >i8[2]; for 2 samples, columns dec" in found
