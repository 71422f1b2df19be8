"""Reads from moto (S3) and fake-gcs-server through a proxy with faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from tests.harness.datasets import jpeg
from tests.harness.http_faults import FaultProxy, Faults
from tests.harness.real_stores import needs_stores, put
from tests.harness.tfrecords import example, write_records
from typer.testing import CliRunner

import infeed
from infeed.cli import new_app
from infeed.shared.errors import SourceError
from infeed_formats.stores.requests import of_process, split_path
from infeed_server.pipeline.load import from_yaml
from infeed_server.storage.files import list_files
from infeed_server.storage.ranges import RangeReader

pytestmark = [pytest.mark.slow, needs_stores]

SIZE = 1 << 20


def test_exact_and_never_another_object(proxy: tuple[str, FaultProxy]) -> None:
    bucket, faulty = proxy
    draw = random.Random(1)
    contents = {f"{bucket}/data/{name}": draw.randbytes(SIZE) for name in ("a", "b c", "d")}
    for path, content in contents.items():
        put(proxy, path, content)
    files = list_files([f"{bucket}/data/*"])
    assert [file.path for file in files] == sorted(contents)
    listed = [file for path in contents for file in list_files([path])]
    assert listed == files  # an answer has the same version as the list
    faulty.faults = Faults(0.03, 0.01, cut_rate=0.05, slow_rate=0.05)
    ranges = RangeReader(files)
    numbers = np.array([draw.randrange(3) for _ in range(200)])
    begins = np.array([draw.randrange(SIZE - 5000) for _ in range(200)])
    found = ranges.read(numbers, begins, np.full(200, 5000))
    for number, begin, content in zip(numbers, begins, found, strict=True):
        assert content == contents[files[number].path][begin : begin + 5000]
    faulty.faults = Faults()
    put(proxy, files[1].path, draw.randbytes(SIZE))
    with pytest.raises(SourceError, match="changed since"):
        ranges.read(np.array([1]), np.array([0]), np.array([10]))
    faulty.faults.is_down = True
    with pytest.raises(SourceError, match="the batch is refused"):
        ranges.read(np.array([2]), np.array([0]), np.array([10]))
    faulty.faults.is_down = False
    (content,) = ranges.read(np.array([2]), np.array([0]), np.array([10]))
    assert content == contents[files[2].path][:10]
    root, key = split_path(files[2].path)
    obstore.delete(of_process().store(root), key)
    with pytest.raises(SourceError, match="no such object"):
        ranges.read(np.array([2]), np.array([0]), np.array([10]))


def test_absent_buckets_and_objects(proxy: tuple[str, FaultProxy]) -> None:
    bucket, _ = proxy
    put(proxy, f"{bucket}/data/a", b"a")
    with pytest.raises(SourceError, match=r"no file matches.*which holds a$"):
        list_files([f"{bucket}/data/q"])
    with pytest.raises(SourceError, match=r"no such bucket|500 Internal"):
        list_files([f"{bucket}t/data/*"])


def test_init_check_and_serve(proxy: tuple[str, FaultProxy], tmp_path: Path, serve: Any) -> None:
    bucket, _ = proxy
    written = tmp_path / "written.tfrecord"
    write_records(written, (example({"x": [n], "y": [bytes(1000)]}) for n in range(40)))
    records = written.read_bytes()
    for number in range(2):
        put(proxy, f"{bucket}/data/train-{number}.tfrecord", records)
    for number in range(4):
        put(proxy, f"{bucket}/photos/{'ab'[number % 2]}/{number}.jpg", jpeg(number))
    for path, field in (("data", "x"), ("photos", "image")):
        file = str(tmp_path / f"{path}.yaml")
        for command in (["init", f"{bucket}/{path}", "-o", file], ["check", file, "--scan"]):
            result = CliRunner().invoke(new_app(), command)
            assert result.exit_code == 0, result.output
        server = serve(from_yaml(file))
        (name,) = from_yaml(file)
        with infeed.connect(str(server.address), name) as feed:
            assert len(next(feed)[field])
