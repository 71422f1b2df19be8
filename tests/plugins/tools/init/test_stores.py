"""Starters for data in an object store: as for local files, from lists and objects' heads."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.harness.datasets import jpeg
from tests.harness.object_server import ObjectServer
from tests.harness.tfrecords import example, write_records

from infeed.shared.errors import SourceError
from infeed_tools.init.detect import starter_for

RIEGELI = bytes.fromhex("83af70d10d884a3f") + bytes(100)


def text(path: str) -> str:
    return starter_for(path, Path("/far/away/from/the/data")).text("infeed init", "pipelines.yaml")


def assert_same(store: ObjectServer, root: Path, path: str) -> None:
    """Asserts that a starter differs from a local folder's only in its paths and order."""
    store.put_folder(root, "bkt")
    remote = text(f"s3://bkt/{path}").replace(", mode: window", "")
    local = text(f"{root}/{path}").replace("'", "")
    assert remote.replace("s3://bkt", str(root)).replace("'", "") == local


@pytest.mark.parametrize(
    "path",
    [
        *("folders", "csv/images", "csv/labels.csv", "other-csv/table.csv", "parts", "parts/train"),
        *("records", "records/train-*", "arrays", "npy", "rows"),
    ],
)
def test_of_files(store: ObjectServer, data: Path, path: str) -> None:
    if path == "rows" and not importlib.util.find_spec("pyarrow"):
        pytest.skip("needs PyArrow")
    assert_same(store, data, path)


def test_shards_are_read_in_windows(store: ObjectServer, data: Path) -> None:
    store.put_folder(data, "bkt")
    train, val = text("s3://bkt/records").split("  val:\n")
    assert "shuffle: {seed: 0, mode: window}" in train
    assert "window" not in val
    assert "window" not in text("s3://bkt/folders")  # each image needs its own request


def test_heads_are_read_and_no_more(store: ObjectServer, tmp_path: Path) -> None:
    records = [example({"x": [n], "y": [bytes(100_000)]}) for n in range(100)]
    write_records(tmp_path / "train-0.tfrecord", records)
    (tmp_path / "photos").mkdir()
    picture = jpeg(0)
    for number in range(3):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(picture + bytes(1 << 20))
    store.put_folder(tmp_path, "bkt")
    for path, requests, sent in (("*.tfrecord", 20, 8 << 20), ("photos", 20, 400_000)):
        before, sent_before = len(store.requests), store.sent_bytes
        assert "x: int64" in text(f"s3://bkt/{path}") or path == "photos"
        assert len(store.requests) - before < requests
        assert store.sent_bytes - sent_before < sent


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://none", "no file matches 's3://none'; 's3://none' cannot be listed: no such bucket"),
        ("s3://none/x", r"matches 's3://none/x'; .* cannot be listed: no such bucket; correct its"),
        ("s3://bkt/nothing", "no file matches 's3://bkt/nothing'; the nearest folder with objects"),
        ("s3://denied/x", r"cannot list 's3://denied/x': the store denies access; grant the right"),
        ("s3://bkt/r.arrayrecord", "the source arrayrecord reads only local files; copy them to"),
        ("s3://bkt/pets", "the source huggingface reads only local files; copy them to"),
        ("s3://bkt/notes", "a.txt holds an unknown kind of data; see"),
    ],
)
def test_what_cannot_be_served_is_explained(
    store: ObjectServer, tmp_path: Path, path: str, message: str
) -> None:
    store.objects |= {"bkt/notes/a.txt": b"notes", "bkt/r.arrayrecord": RIEGELI}
    store.objects["bkt/pets/dataset_dict.json"] = b'{"splits": ["train", "test"]}'
    store.refusals["denied"] = (403, "AccessDenied")
    with pytest.raises(SourceError, match=message):
        starter_for(path, tmp_path)


def test_web_server_lists_no_folder(store: ObjectServer, data: Path) -> None:
    store.put_folder(data, "bkt")
    url = f"{store.url}/bkt/records/train-00000-of-00002"
    assert f"tfrecord: {url}\n" in text(url)
    with pytest.raises(SourceError, match="a web server lists no files; name each of them"):
        text(f"{store.url}/bkt/records/none")
