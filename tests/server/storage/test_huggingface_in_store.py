"""Data sets of `save_to_disk` in an object store: whole record batches, and the rows of a disk."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.object_server import ObjectServer
from tests.harness.saved import write_saved

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.sources.arrow.huggingface import HuggingFaceSource

pa = pytest.importorskip("pyarrow")

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "m": {"_type": "Array2D", "shape": [2, 1], "dtype": "int64"},
}
ROWS = 20


def columns() -> dict[str, Any]:
    return {
        "image": [{"bytes": b"image %d" % n, "path": None} for n in range(ROWS)],
        "label": [n % 2 for n in range(ROWS)],
        "m": [[[n], [n]] for n in range(ROWS)],
        "nested": [{"x": n / 2} for n in range(ROWS)],
        "lists": [[n] * (n % 3) for n in range(ROWS)],
        "d": pa.array([f"{n % 3}" for n in range(ROWS)]).dictionary_encode(),
    }


def opened(folder: object, **options: Any) -> Any:
    return HuggingFaceSource.model_validate({"huggingface": str(folder), **options}).open()


@pytest.fixture
def saved(tmp_path: Path, store: ObjectServer) -> Path:
    """A data set of two files with record batches of 3 rows, also in the store as `bkt/pets`."""
    folder = write_saved(tmp_path / "pets", columns(), FEATURES, files=2, batch=3)
    store.put_folder(tmp_path, "bkt")
    return folder


def test_rows_are_as_on_a_disk(saved: Path, store: ObjectServer) -> None:
    local, remote = opened(saved), opened("s3://bkt/pets")
    assert remote.identity == local.identity
    assert remote.columns == local.columns
    assert remote.classes["label"] == ("cat", "dog")
    assert str(remote.provenance(19)) == "s3://bkt/pets/data-00001-of-00002.arrow"
    order = np.random.default_rng(1).permutation(ROWS)
    before = len(store.requests)
    for some in (order, order[:5]):
        found, expected = remote.read(some), local.read(some)
        assert {name: found[name].tolist() for name in found} == {
            name: expected[name].tolist() for name in expected
        }
    assert len(store.requests) - before <= 2  # near batches share a request, and are kept
    remote.close()


def test_the_start_reads_metadata_alone(tmp_path: Path, store: ObjectServer) -> None:
    write_saved(tmp_path / "large", {"x": [bytes(100_000)] * 40}, {}, batch=10)
    store.put_folder(tmp_path, "bkt")
    source = opened("s3://bkt/large", cache=1 << 20)
    assert store.sent_bytes < 40_000
    assert source.advice == ""
    source.read(np.array([5]))
    source.read(np.array([6]))  # of the same batch, which is as large as the budget
    assert source.read(np.array([39]))["x"].tolist() == [bytes(100_000)]


def test_advice_names_the_window(tmp_path: Path, store: ObjectServer) -> None:
    write_saved(tmp_path / "large", {"x": [bytes(10_000)] * 400}, {}, batch=200)
    store.put_folder(tmp_path, "bkt")
    advice = opened("s3://bkt/large", cache=1 << 20).advice
    assert "a row costs its record batch, of up to 200 rows and 1 MiB" in advice
    assert "mode: window, block: 200, window: 800" in advice


def test_columns_that_are_kept_keep_no_others(tmp_path: Path, store: ObjectServer) -> None:
    write_saved(tmp_path / "large", {"x": [bytes(50_000)] * 400, "y": [1] * 400}, {}, batch=10)
    store.put_folder(tmp_path, "bkt")
    source = opened("s3://bkt/large/", cache=1 << 20, columns=["y"])
    source.read(np.arange(10))
    tracemalloc.start()
    for begin in range(0, 400, 10):
        assert source.read(np.arange(begin, begin + 10))["y"].tolist() == [1] * 10
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4 << 20  # of 20 MB


@pytest.mark.parametrize("cut", [3, 4, 8, 20])
def test_cut_file_is_named(saved: Path, store: ObjectServer, cut: int) -> None:
    key = "bkt/pets/data-00000-of-00002.arrow"
    end = store.objects[key]
    store.objects[key] = end[:-8] + end[:cut]
    with pytest.raises(SourceError, match=r"00000-of-00002.arrow: it cannot be read: .* at byte"):
        opened("s3://bkt/pets")
    store.objects[key] = end[:-8] + bytes(7)  # the end, as old versions wrote it
    assert len(opened("s3://bkt/pets")) == ROWS


def test_another_object_is_never_read(saved: Path, store: ObjectServer) -> None:
    source = opened("s3://bkt/pets")
    key = "bkt/pets/data-00001-of-00002.arrow"
    store.objects[key] = store.objects[key][:-1] + b"x"
    assert source.read(np.array([0]))["label"].tolist() == [0]
    with pytest.raises(SourceError, match=r"00001-of-00002.arrow changed since it was opened"):
        source.read(np.array([19]))


def test_splits_and_other_folders_are_named(saved: Path, store: ObjectServer) -> None:
    store.objects["bkt/all/dataset_dict.json"] = b'{"splits": ["train", "test"]}'
    store.objects["bkt/rows/a.parquet"] = b"p"
    for folder, message in (
        ("all", "is a DatasetDict; name one of its splits: .*s3://bkt/all/train"),
        ("rows", r"holds Parquet files; name them: parquet: 's3://bkt/rows/\*\*/\*.parquet'"),
        ("none", "no folder 's3://bkt/none'; the nearest folder with objects is 's3://bkt'"),
    ):
        with pytest.raises(SourceError, match=message):
            opened(f"s3://bkt/{folder}")
    del store.objects["bkt/pets/data-00000-of-00002.arrow"]
    with pytest.raises(SourceError, match=r"no file matches .*data-00000-of-00002.arrow"):
        opened("s3://bkt/pets")


def test_dictionaries_that_change_are_refused(tmp_path: Path, store: ObjectServer) -> None:
    write_saved(tmp_path / "pets", {"d": ["a"]}, {})
    batches = [
        pa.record_batch({"d": pa.array(list(text)).dictionary_encode()}) for text in ("ab", "cd")
    ]
    file = tmp_path / "pets" / "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(str(file), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    store.put_folder(tmp_path, "bkt")
    assert opened(tmp_path / "pets").read(np.arange(4))["d"].tolist() == [b"a", b"b", b"c", b"d"]
    with pytest.raises(SourceError, match="its dictionaries change at byte"):
        opened("s3://bkt/pets")


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_give_rows_or_a_named_error(
    tmp_path: Path, store: ObjectServer, seed: int
) -> None:
    """Arrow has no checksums: a changed byte of a value is not found."""
    rng = random.Random(seed)
    write_saved(tmp_path / "f", columns(), FEATURES)
    store.put_folder(tmp_path, "bkt")
    key = "bkt/f/data-00000-of-00001.arrow"
    content = store.objects[key]
    for number in range(75):
        position = rng.randrange(len(content))
        flipped = bytes([content[position] ^ (1 << rng.randrange(8))])
        store.objects[key] = content[:position] + flipped + content[position + 1 :]
        if number % 5 == 4:
            store.objects[key] = content[:position]
        try:
            source = opened("s3://bkt/f")
            read = source.read(np.arange(len(source)))
        except InfeedError:
            continue
        assert {len(values) for values in read.values()} == {len(source)}
