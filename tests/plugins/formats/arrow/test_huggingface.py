"""The `huggingface` source: saved data sets, their features, identity and errors."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.saved import write_saved

from infeed.shared.errors import ConfigError, InfeedError, SampleError, SourceError
from infeed_formats.arrow.huggingface import HuggingFaceSource
from infeed_formats.arrow.tables import TableReader
from infeed_server.pipeline.load import parse

pa = pytest.importorskip("pyarrow")

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "text": {"_type": "Value", "dtype": "string"},
    "m": {"_type": "Array2D", "shape": [2, 1], "dtype": "int64"},
    "nested": {"x": {"_type": "Value", "dtype": "float64"}},
}
ROWS = 10


def columns() -> dict[str, Any]:
    return {
        "image": [{"bytes": b"image %d" % n, "path": None} for n in range(ROWS)],
        "label": [n % 2 for n in range(ROWS)],
        "text": [f"t{n}" for n in range(ROWS)],
        "m": [[[n], [n]] for n in range(ROWS)],
        "nested": [{"x": n / 2} for n in range(ROWS)],
    }


def opened(folder: Path, names: list[str] | None = None, **options: Any) -> TableReader:
    definition = {"huggingface": str(folder), "columns": names, **options}
    return HuggingFaceSource.model_validate(definition).open()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_saved(tmp_path / "pets", columns(), FEATURES, files=2, batch=3)


def test_rows_are_read_in_any_order(saved: Path) -> None:
    source = opened(saved)
    assert len(source) == ROWS
    assert source.parsed
    assert source.columns == {
        "image": tf.TensorSpec((), tf.string),
        "label": tf.TensorSpec((), tf.int64),
        "text": tf.TensorSpec((), tf.string),
        "m": tf.TensorSpec((2, 1), tf.int64),
        "nested.x": tf.TensorSpec((), tf.float64),
    }
    read = source.read(np.array([9, 0, 4, 4]))
    assert read["image"].tolist() == [b"image 9", b"image 0", b"image 4", b"image 4"]
    assert read["label"].tolist() == [1, 0, 0, 0]
    assert read["m"][0].tolist() == [[9], [9]]
    assert read["nested.x"].tolist() == [4.5, 0, 2, 2]
    assert source.classes["label"] == ("cat", "dog")
    assert source.provenance(9).file == str(saved / "data-00001-of-00002.arrow")
    assert list(opened(saved, ["label", "image"]).columns) == ["label", "image"]


def test_path_without_bytes_is_a_bad_sample(tmp_path: Path) -> None:
    rows = columns()
    rows["image"][7] = {"bytes": None, "path": "/photos/7.jpg"}
    source = opened(write_saved(tmp_path / "pets", rows, FEATURES, files=2), ["image"])
    with pytest.raises(SampleError, match=r"sample 7 .*data-00001-of-00002.arrow, row 2: its "
                       r"column 'image' is null; .* a file's path, .*save_to"):  # fmt: skip
        source.read(np.array([1, 7]))


def test_identity_is_the_fingerprint_and_sizes(saved: Path, tmp_path: Path) -> None:
    same = write_saved(tmp_path / "same", columns(), FEATURES, files=2, batch=3)
    assert opened(same).identity == opened(saved).identity
    other = write_saved(tmp_path / "other", columns(), FEATURES, files=2, batch=3, _fingerprint="9")
    longer = {**columns(), "text": ["longer text"] * ROWS}
    sized = write_saved(tmp_path / "sized", longer, FEATURES, files=2, batch=3)
    identities = [opened(folder).identity for folder in (saved, other, sized)]
    assert len({*identities, opened(saved, ["text"]).identity}) == 4


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            lambda f: write_saved(f, columns(), {}, _indices_data_files=[{"filename": "i.arrow"}]),
            r"indices.arrow chooses its rows, .*: ds\.flatten_indices\(\)\.save_to_disk\(FOLDER\)",
        ),
        (lambda f: write_saved(f, columns(), {}, _data_files=[]), "pets has no rows; leave it out"),
        (lambda f: (f / "state.json").write_text("{"), "state.json: the JSON of save_to_disk"),
        (lambda f: (f / "state.json").write_text("{}"), "state.json: .*: no '_data_files'"),
        (
            lambda f: (f / "dataset_info.json").write_text("{}"),
            "dataset_info.json: .*: no 'features'",
        ),
        (
            lambda f: (f / "dataset_info.json").unlink(),
            "cannot read '.*dataset_info.json': No such",
        ),
        (
            lambda f: (f / "data-00000-of-00001.arrow").unlink(),
            "cannot open '.*arrow': No such file",
        ),
        (
            lambda f: os.truncate(f / "data-00000-of-00001.arrow", 900),
            "data-00000-of-00001.arrow: it cannot be read: .*; put a good copy",
        ),
        (
            lambda f: ((f / "state.json").unlink(), (f / "a.parquet").touch()),
            r"holds Parquet files; name them: parquet: '.*/\*\*/\*\.parquet'",
        ),
        (
            lambda f: (
                (f / "state.json").unlink(),
                (f / "dataset_dict.json").write_text('{"splits": ["train", "test"]}'),
            ),
            "is a DatasetDict; name one of its splits: .*/train, .*/test",
        ),
        (
            lambda f: (f / "state.json").unlink(),
            r"is not a saved data set: .*ds\.save_to_disk\(FOLDER\)",
        ),
    ],
)
def test_folder_that_cannot_be_read(tmp_path: Path, prepare: Any, message: str) -> None:
    folder = write_saved(tmp_path / "pets", columns(), FEATURES)
    prepare(folder)
    with pytest.raises(SourceError, match=message):
        opened(folder)


def test_files_of_other_types_are_refused(saved: Path, tmp_path: Path) -> None:
    other = write_saved(tmp_path / "other", {"label": ["a"]}, {})
    (other / "data-00000-of-00001.arrow").replace(saved / "data-00001-of-00002.arrow")
    with pytest.raises(
        SourceError, match=r"00001-of-00002.arrow and .* differ in columns or types"
    ):
        opened(saved, ["label"])


def test_unknown_column_and_missing_folder(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"no column 'labels' .*'label'.*; available: image, label, text, m"
    ):
        opened(saved, ["labels"])
    ((path, problem),) = HuggingFaceSource(huggingface=str(tmp_path / "no")).check()
    assert path == ("huggingface",)
    assert "no folder '" in problem


def test_folder_in_a_store_is_refused() -> None:
    definition = {"source": {"huggingface": "s3://bkt/pets"}, "batch": 1}
    with pytest.raises(ConfigError, match=r"'s3://bkt/pets' is in a store, .* copy the folder to"):
        parse(definition)


def test_changed_file_refuses_its_batches(saved: Path) -> None:
    source = opened(saved)
    file = saved / "data-00001-of-00002.arrow"
    os.truncate(file, file.stat().st_size - 8)
    assert source.read(np.array([0]))["label"].tolist() == [0]
    with pytest.raises(SourceError, match=r"00001-of-00002.arrow changed since it was opened"):
        source.read(np.array([9]))


@pytest.mark.parametrize("seed", range(2))
def test_flipped_bytes_give_rows_or_a_named_error(tmp_path: Path, seed: int) -> None:
    """Arrow has no checksums: a changed byte of a value is not found."""
    rng = random.Random(seed)
    rows = {**columns(), "l": [[n] * (n % 3) for n in range(ROWS)]}
    rows["d"] = pa.array([f"{n % 3}" for n in range(ROWS)]).dictionary_encode()
    folder = write_saved(tmp_path / "f", rows, FEATURES, batch=4)
    file = folder / "data-00000-of-00001.arrow"
    content = file.read_bytes()
    for _ in range(75):
        position = rng.randrange(len(content))
        flipped = bytes([content[position] ^ (1 << rng.randrange(8))])
        file.unlink()
        file.write_bytes(content[:position] + flipped + content[position + 1 :])
        try:
            source = opened(folder)
            read = source.read(np.arange(len(source)))
        except InfeedError:
            continue
        assert {len(values) for values in read.values()} == {len(source)}
