"""Tests of the drafts for ArrayRecords."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.starters import definitions

from infeed_formats.tfrecord.preview import read_first


def test_array_records(data: Path, tmp_path: Path) -> None:
    writer_of = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter
    for number in range(2):  # as TensorFlow Datasets names them
        path = tmp_path / f"photos-train.array_record-{number:05}-of-00002"
        writer = writer_of(str(path), "group_size:1")
        for record in read_first(str(data / "records" / "train-00000-of-00002"), 8):
            writer.write(record)
        writer.close()
    (pipeline,) = definitions(tmp_path, ".").values()
    expected = definitions(data, "records/train-*")["train"]
    assert pipeline["source"].pop("arrayrecord") == "photos-train.array_record-*-of-*"
    assert pipeline["source"] == {"features": expected["source"]["features"]}
    assert pipeline["transforms"] == expected["transforms"]
