"""Tests of the drafts for folders of Mosaic Streaming."""

from __future__ import annotations

from pathlib import Path

from tests.harness.datasets import jpeg
from tests.harness.mds import write_mds
from tests.harness.starters import definitions, names, text


def test_folder_of_mosaic_streaming(tmp_path: Path) -> None:
    columns = {
        "image": ("jpeg", None),
        "label": ("int", 8),
        "meta": ("pkl", None),
        "tokens": ("ndarray:uint8", None),
    }
    samples = [
        {
            "image": jpeg(number),
            "label": bytes(8),
            "meta": b"",
            "tokens": bytes([4, number, *range(number)]),
        }
        for number in range(1, 9)
    ]
    write_mds(tmp_path / "data" / "train", columns, [samples])
    pipeline = definitions(tmp_path, "data")["train"]
    assert pipeline["source"] == {"mds": "data/train", "fields": ["image", "label"]}
    assert names(pipeline)[0] == "decode_image"
    written = text(tmp_path, "data/train")
    assert "# train: left out: meta: pkl\n" in written
    assert "# train: left out: tokens: its shape varies: uint8[?]" in written
    assert written == text(tmp_path, "data/train/index.json")
