"""Pointers of Git LFS: named wherever a file of any format cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import InfeedError
from infeed_server.engines.indexed.examination import find_bad_sample
from infeed_server.pipeline.load import parse

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 12345\n" % (b"0" * 64)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("x.tfrecord", {"tfrecord": "x.tfrecord", "features": {"x": "int64"}}),
        ("x.tar", {"webdataset": "x.tar"}),
        ("x.npy", {"arrays": "x.npy"}),
        ("x.npz", {"arrays": "x.npz"}),
        ("x.parquet", {"parquet": "x.parquet"}),
        ("x.arrayrecord", {"arrayrecord": "x.arrayrecord"}),
        ("x.idx", {"tokens": "x.idx"}),
        ("index.json", {"mds": "."}),
        ("state.json", {"huggingface": "."}),
        ("dataset_info.json", {"tfds": ".", "split": "train"}),
        ("x.csv", {"images": "photos", "labels": "x.csv"}),
    ],
)
def test_a_pointer_is_named_when_a_source_is_opened(
    tmp_path: Path, name: str, source: dict[str, Any]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    (tmp_path / name).write_bytes(POINTER)
    pipeline = parse({"source": source, "batch": 1}).resolve(tmp_path)
    with pytest.raises(InfeedError, match=rf"{name} is a Git LFS pointer, .*git lfs pull"):
        pipeline.open()


def test_a_pointer_among_images_is_a_bad_sample_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(POINTER)
    pipeline = parse(
        {
            "source": {"images": str(tmp_path)},
            "transforms": [{"decode_image": {"field": "image"}}],
            "batch": 1,
        }
    )
    steps = [*enumerate(pipeline.transforms)]
    failure = find_bad_sample(pipeline.open(), steps, 0, np.zeros(2, np.int64))
    assert failure is not None
    assert str(failure.error).startswith(
        f"sample 0 cannot be read: {tmp_path}/a.jpg is a Git LFS pointer"
    )
