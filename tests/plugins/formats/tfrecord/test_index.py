"""The record index: content, identity, progress, and errors of data files."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed import SourceError
from infeed_formats.tfrecord import framing
from infeed_formats.tfrecord.index import build_index
from infeed_formats.tfrecord.reader import TFRecordReader
from infeed_server.storage.files import INDEX_SUFFIX, list_files

Write = Callable[..., Path]


def encode_record(data: bytes) -> bytes:
    """Returns one record as it is stored in a file."""
    length = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", framing.masked_crc(part)) for part in (length, data)]
    return length + crcs[0] + data + crcs[1]


def index_path(path: Path) -> Path:
    return path.with_name(path.name + INDEX_SUFFIX)


def read_all(path: Path) -> list[bytes]:
    records = TFRecordReader(build_index(list_files([str(path)]), rebuild=True), {})
    result: list[bytes] = records.read(np.arange(len(records)))["record"].tolist()
    return result


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    window=st.integers(16, 400),
    threshold=st.integers(0, 200),
)
def test_scan_finds_every_record_for_any_window(
    sizes: list[int],
    window: int,
    threshold: int,
    write_records: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small windows split the scan at every position in a record.
    monkeypatch.setattr(framing, "_SCAN_WINDOW", window)
    monkeypatch.setattr(framing, "_SKIP_WINDOW", 16)
    monkeypatch.setattr(framing, "_SKIP_THRESHOLD", threshold)
    records = [os.urandom(size) for size in sizes]
    assert read_all(write_records("any.tfrecord", records)) == records


@pytest.mark.parametrize(
    ("cut", "whole", "offset"), [(1, 1, 21), (6, 1, 21), (20, 1, 21), (24, 0, 0)]
)
def test_truncated_file_is_refused(cut: int, whole: int, offset: int, write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    path.write_bytes(path.read_bytes()[:-cut])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(
            SourceError, match=f"{whole} whole records precede byte {offset}"
        ) as caught:
            build_index(list_files([str(path)]))
        assert caught.value.metadata == {"file": str(path), "offset": str(offset)}


@pytest.mark.parametrize("large", [7, 9 << 20])
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_keep_damaged_finds_damaged_data(write_records: Write, prefix: str, large: int) -> None:
    path = write_records("0.tfrecord", [b"one", bytes(large), b"", b"four"])
    paths = [f"{prefix}{path}", f"{prefix}{write_records('1.tfrecord', [b'five'])}"]
    good = build_index(list_files(paths), keep_damaged=True)
    assert good.damaged.tolist() == []
    assert good.identity == build_index(list_files(paths)).identity
    content = bytearray(path.read_bytes())
    content[int(good.offsets[1]) + 12 + large - 1] ^= 1
    content[int(good.offsets[3]) + 12] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    unverified = build_index(list_files(paths))
    assert (unverified.identity, unverified.damaged.tolist()) == (good.identity, [])
    for cached in (False, True):
        found = build_index(list_files(paths), keep_damaged=True)
        assert found.damaged.tolist() == [1, 3]
        assert found.identity != good.identity
        assert found.files[0].cached is cached
    assert build_index(list_files(paths)).identity == good.identity


FOUR = encode_record(b"four")


def test_record_of_4_gib_is_refused(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 32)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(
        encode_record(b"one") + length + struct.pack("<I", framing.masked_crc(length)) + bytes(99)
    )
    with pytest.raises(SourceError, match="byte 19 has 4294967296 bytes; the maximum is") as caught:
        build_index(list_files([str(path)]))
    assert caught.value.metadata["offset"] == "19"


def test_file_that_shrinks_while_indexed_is_refused(
    write_records: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])

    def scan_and_truncate(handle: object, *args: object, **options: bool) -> object:
        path.write_bytes(path.read_bytes()[:19])
        return framing.scan_records(handle, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("infeed_formats.tfrecord.index.scan_records", scan_and_truncate)
    with pytest.raises(SourceError, match=r"a\.tfrecord became shorter while it was indexed"):
        build_index(list_files([str(path)]))


def test_corrupt_length_is_reported_with_its_offset(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    content = bytearray(path.read_bytes())
    content[22] ^= 255
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.tfrecord is corrupt at byte 21") as caught:
        build_index(list_files([str(path)]))
    assert "1 whole records precede" in str(caught.value)
    assert caught.value.metadata["offset"] == "21"
    assert not index_path(path).exists()


@pytest.mark.parametrize(("compression", "command"), [("GZIP", "gunzip"), ("ZLIB", "python3 -c")])
def test_compressed_file_is_refused_with_a_remedy(
    write_records: Write, compression: str, command: str
) -> None:
    path = write_records("a.tfrecord", [b"one" * 100], compression)
    match = (
        rf"with {compression}, .*; unpack it: {command}.*\.TFRecordDataset\(FILES, '{compression}'"
    )
    with pytest.raises(SourceError, match=match):
        build_index(list_files([str(path)]))


@pytest.mark.parametrize("content", [b"one" * 2, b"six"], ids=["longer", "of the same length"])
def test_file_written_while_indexed_is_refused(
    write_records: Write, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    path = write_records("a.tfrecord", [b"one"])

    def scan_and_write(*args: object, **options: bool) -> object:
        scanned = framing.scan_records(*args, **options)  # type: ignore[arg-type]
        write_records("a.tfrecord", [content])
        os.utime(path, ns=(1, 1))
        return scanned

    monkeypatch.setattr("infeed_formats.tfrecord.index.scan_records", scan_and_write)
    with pytest.raises(SourceError, match="changed while it was indexed"):
        build_index(list_files([str(path)]))
    assert not index_path(path).exists()


def test_remote_file_equals_local_file(write_records: Write, cache_folder: Path) -> None:
    records = [os.urandom(size) for size in (3, 100_000, 0, 17)]
    path = write_records("a.tfrecord", records)
    remote = f"file://{path}"
    assert tf.io.gfile.exists(remote)
    index = build_index(list_files([remote]))
    assert TFRecordReader(index, {}).read(np.arange(4))["record"].tolist() == records
    assert index.identity == build_index(list_files([str(path)])).identity
    assert build_index(list_files([remote])).files[0].cached
    assert len(list(cache_folder.iterdir())) == 1


def test_identity_is_independent_of_the_folder(write_records: Write, tmp_path: Path) -> None:
    path = write_records("a", [b"a", b"bc"])
    before = build_index(list_files([str(path)])).identity
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / path.name)
    assert build_index(list_files([str(moved)])).identity == before
