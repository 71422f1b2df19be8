"""Tests of the drafts for folders of TensorFlow Datasets."""

from __future__ import annotations

from pathlib import Path

from tests.harness.datasets import jpeg
from tests.harness.starters import definitions, names, text
from tests.harness.tfds import IMAGE, LABEL, sequence, tensor, write_tfds


def test_folder_of_tensorflow_datasets(tmp_path: Path) -> None:
    rows = [{"image": [jpeg(n, (40 + n, 30))], "label": [n % 2]} for n in range(6)]
    features = {"image": IMAGE, "label": LABEL, "tokens": sequence(tensor("int64"))}
    folder = tmp_path / "small" / "1.0.0"
    write_tfds(folder, features, {"train": [rows[:3], rows[3:]], "test": [rows[:2]]})
    found = definitions(tmp_path, "small")
    assert found["small-train"]["source"] == {"tfds": "small/1.0.0", "split": "train"}
    assert names(found["small-train"])[1] == "random_resized_crop"
    assert names(found["small-test"])[1] == "resize"
    assert "left out: tokens: its length varies" in text(tmp_path, "small")
    assert not list(folder.glob("*.infeed-index.npz"))
