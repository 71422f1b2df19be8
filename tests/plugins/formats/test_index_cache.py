"""The cache of record indices: locations, validation, and atomic replacement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import SourceError
from infeed_formats import index_cache
from infeed_formats.tfrecord.index import build_index
from infeed_server.storage.files import INDEX_SUFFIX, list_files
from infeed_server.storage.stamp import FileStamp

Write = Callable[..., Path]


def index_path(path: Path) -> Path:
    return path.with_name(path.name + INDEX_SUFFIX)


def test_index_is_cached_beside_the_data(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])
    built = build_index(list_files([str(path)]))
    assert not built.files[0].cached
    assert index_path(path).exists()
    again = build_index(list_files([str(path)]))
    assert again.files[0].cached
    assert again.identity == built.identity
    np.testing.assert_array_equal(again.offsets, [0, 19])
    np.testing.assert_array_equal(again.lengths, [3, 3])
    assert again.offsets.dtype == np.uint64
    assert again.lengths.dtype == np.uint32
    assert not build_index(list_files([str(path)]), rebuild=True).files[0].cached


def test_index_with_a_changed_byte_is_invalid_or_the_same(tmp_path: Path) -> None:
    path, stamp = str(tmp_path / "a.tar"), FileStamp(1, 2)
    arrays = {"lengths": np.array([3, 3], np.uint32), "names": np.array(["a", "bc"])}
    index_cache.store_index(path, stamp, "1", arrays)
    content = index_path(Path(path)).read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        index_path(Path(path)).write_bytes(changed)
        loaded = index_cache.load_index(path, stamp, "1", lambda a: [a[name] for name in arrays])
        assert loaded is None or all(map(np.array_equal, loaded, arrays.values()))


@pytest.mark.parametrize(
    "changes",
    [
        {"stamp": lambda stamp: ["0", *stamp[1:]]},  # of another version
        {"stamp": lambda stamp: [stamp[0], "1", *stamp[2:]]},
        {"stamp": lambda stamp: [*stamp[:2], "1", stamp[3]]},
        {"stamp": lambda stamp: [*stamp[:3], "etag"]},
        {"lengths": lambda lengths: lengths.astype(np.int64)},
        {"crcs": lambda crcs: crcs.astype(np.int64)},
        {"crcs": lambda crcs: crcs[:1]},
        {"lengths": lambda lengths: lengths[:, None], "crcs": lambda crcs: crcs[:, None]},
        {"lengths": lambda lengths: lengths + np.uint32(1)},  # beyond the end of the file
        {"damaged": lambda damaged: np.array([2])},
        {"damaged": lambda damaged: damaged.astype(np.float64)},
    ],
    ids=[
        *("version", "size", "time", "etag", "lengths", "crcs", "uneven", "shape", "beyond"),
        *("no such record", "damaged"),
    ],
)
def test_index_of_another_file_is_rebuilt(changes: Any, write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])
    good = build_index(list_files([str(path)]), keep_damaged=True)
    with np.load(index_path(path)) as file:
        arrays = {name: changes.get(name, lambda array: array)(file[name]) for name in file.files}
    np.savez(index_path(path), **arrays)
    again = build_index(list_files([str(path)]))
    assert not again.files[0].cached
    assert again.identity == good.identity


def test_user_cache_is_the_fallback(write_records: Write, cache_folder: Path) -> None:
    path = write_records("a.tfrecord", [b"one"])
    index_path(path).mkdir()  # so that no file can be written there
    build_index(list_files([str(path)]))
    assert len(list(cache_folder.iterdir())) == 1
    assert build_index(list_files([str(path)])).files[0].cached
    assert sorted(item.name for item in path.parent.iterdir() if item.is_file()) == ["a.tfrecord"]


def test_index_is_built_without_a_writable_cache(
    write_records: Write, cache_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_records("a.tfrecord", [b"one"])
    index_path(path).mkdir()
    cache_folder.write_text("a file where the folder would be")
    assert len(build_index(list_files([str(path)]))) == 1
    assert "cannot be stored" in caplog.text


def test_configured_directory_is_the_only_cache(write_records: Write, tmp_path: Path) -> None:
    paths = [str(write_records(f"{name}/a.tfrecord", [name.encode()])) for name in "xy"]
    directory = tmp_path / "chosen"
    build_index(list_files(paths), str(directory))
    assert len(list(directory.iterdir())) == 2
    assert all(file.cached for file in build_index(list_files(paths), str(directory)).files)
    assert not index_path(Path(paths[0])).exists()
    (tmp_path / "taken").write_text("")
    with pytest.raises(SourceError, match="cannot write the record index"):
        build_index(list_files(paths), str(tmp_path / "taken"))


def test_interrupted_store_leaves_no_file(
    write_records: Write, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records("data/a.tfrecord", [b"one"])

    def write_half(file: object, **_: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(index_cache.np, "savez", write_half)
    with pytest.raises(KeyboardInterrupt):
        build_index(list_files([str(path)]))
    assert list(path.parent.iterdir()) == [path]
    assert not cache_folder.exists()
