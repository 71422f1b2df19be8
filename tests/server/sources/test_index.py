"""The record index: what it holds and what it refuses."""

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
from infeed_server.sources import framing
from infeed_server.sources.files import INDEX_MARK
from infeed_server.sources.index import build_index
from infeed_server.sources.records import Records

Write = Callable[..., Path]


def index_of(path: Path) -> Path:
    return path.with_name(path.name + INDEX_MARK)


def read_all(path: Path) -> list[bytes]:
    records = Records(build_index([str(path)], rebuild=True), {})
    result: list[bytes] = records.read(np.arange(len(records)))["record"].tolist()
    return result


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    window=st.integers(16, 400),
    hop=st.integers(0, 200),
)
def test_finds_every_record_whatever_the_windows(
    sizes: list[int],
    window: int,
    hop: int,
    write_records: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small windows put the seams of the scan at every place in a record.
    monkeypatch.setattr(framing, "_SCAN_WINDOW", window)
    monkeypatch.setattr(framing, "_HOP_WINDOW", 16)
    monkeypatch.setattr(framing, "_HOP_OVER", hop)
    records = [os.urandom(size) for size in sizes]
    assert read_all(write_records("any.tfrecord", records)) == records


def test_frames_as_tensorflow_does(write_records: Write) -> None:
    records = [b"", b"one", bytes(1000)]
    path = write_records("a.tfrecord", records)
    assert path.read_bytes() == b"".join(map(framing.frame, records))


def test_steps_over_large_records(write_records: Write) -> None:
    records = [os.urandom(200_000), b"small", os.urandom(9 << 20), b"", os.urandom(70_000)]
    assert read_all(write_records("large.tfrecord", records)) == records


def test_identity_is_the_content_wherever_it_lies(write_records: Write) -> None:
    one = build_index([str(write_records("x/a.tfrecord", [b"one", b"two"]))])
    moved = build_index([str(write_records("y/b.tfrecord", [b"one", b"two"]))])
    split = [
        str(write_records("z/0.tfrecord", [b"one"])),
        str(write_records("z/1.tfrecord", [b"two"])),
    ]
    swapped = build_index([str(write_records("w/a.tfrecord", [b"two", b"one"]))])
    assert one.identity == moved.identity == build_index(split).identity
    assert one.identity != swapped.identity


def test_progress_ends_at_the_total(write_records: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(write_records(f"{n}.tfrecord", [bytes(1000)] * 50)) for n in range(3)]
    total = sum(Path(path).stat().st_size for path in paths)
    monkeypatch.setattr(framing, "_SCAN_WINDOW", 4096)
    monkeypatch.setattr("infeed_server.sources.index._PROGRESS_STEP", 5000)
    told: list[tuple[int, int]] = []
    build_index(paths, progress=lambda done, whole: told.append((done, whole)))
    done = [each for each, _ in told]
    assert done == sorted(done)
    assert len(done) > len(paths)
    assert told[-1] == (total, total)
    told.clear()
    build_index(paths, progress=lambda done, whole: told.append((done, whole)))
    assert len(told) == len(paths)
    assert told[-1] == (total, total)


@pytest.mark.parametrize(("cut", "whole", "at"), [(1, 1, 21), (6, 1, 21), (20, 1, 21), (24, 0, 0)])
def test_a_truncated_file_is_refused(cut: int, whole: int, at: int, write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    path.write_bytes(path.read_bytes()[:-cut])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(SourceError, match=f"{whole} whole records precede byte {at}") as caught:
            build_index([str(path)])
        assert caught.value.metadata == {"file": str(path), "offset": str(at)}


def test_a_cut_header_is_a_truncated_record(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first"])
    path.write_bytes(path.read_bytes() + bytes(7))
    with pytest.raises(SourceError, match="1 whole records precede byte 21"):
        build_index([str(path)])


def test_a_truncated_record_may_be_kept(write_records: Write) -> None:
    cut = write_records("0.tfrecord", [b"one", b"two"])
    cut.write_bytes(cut.read_bytes()[:-2])
    paths = [str(cut), str(write_records("1.tfrecord", [b"three"]))]
    index = build_index(paths, keep_truncated=True)
    assert len(index) == 3
    assert [index.is_truncated(number) for number in range(3)] == [False, True, False]
    assert [index.file_of(number) for number in range(3)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("record", "length", "told"),
    [
        (framing.frame(b"four")[:-1], 4, "the file ends inside it, after 19 of 20 bytes"),
        (framing.frame(b"four"), 3, "its length is 4 where the index has 3"),
        (b"\5" + framing.frame(b"four")[1:], 4, "the CRC of its length does not match"),
        (framing.frame(b"four")[:12] + b"FOUR" + framing.frame(b"four")[16:], 4, "of its data"),
    ],
)
def test_a_record_that_is_not_the_indexed_one(record: bytes, length: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        framing.unframe(record, length)


def test_a_record_of_4_gib_is_refused(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 32)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(
        framing.frame(b"one") + length + struct.pack("<I", framing.masked_crc(length)) + bytes(99)
    )
    with pytest.raises(SourceError, match="byte 19 has 4294967296 bytes; the most is") as caught:
        build_index([str(path)])
    assert caught.value.metadata["offset"] == "19"


def test_a_file_that_becomes_shorter(write_records: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])

    def and_cut(handle: object, *args: object) -> object:
        path.write_bytes(path.read_bytes()[:19])
        return framing.scan(handle, *args)  # type: ignore[arg-type]

    monkeypatch.setattr("infeed_server.sources.index.scan", and_cut)
    with pytest.raises(SourceError, match=r"a\.tfrecord became shorter while it was indexed"):
        build_index([str(path)])


def test_a_corrupt_length_names_its_place(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    content = bytearray(path.read_bytes())
    content[22] ^= 255
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.tfrecord is corrupt at byte 21") as caught:
        build_index([str(path)])
    assert "1 whole records precede" in str(caught.value)
    assert caught.value.metadata["offset"] == "21"
    assert not index_of(path).exists()


def test_a_compressed_file_says_how_to_unpack_it(write_records: Write) -> None:
    path = write_records("a.tfrecord.gz", [b"one" * 100], "GZIP")
    with pytest.raises(SourceError, match=r"compressed with GZIP.*gunzip .*a\.tfrecord\.gz"):
        build_index([str(path)])
    other = write_records("b.tfrecord", [b"one" * 100], "GZIP")
    with pytest.raises(SourceError, match="compressed with GZIP"):
        build_index([str(other)])


def test_a_length_that_looks_like_gzip_is_none(write_records: Write) -> None:
    records = [bytes(0x8B1F)]
    path = write_records("a.tfrecord", records)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert read_all(path) == records


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_text("file,label\nphoto.jpg,1\n")
    with pytest.raises(SourceError, match="is no TFRecord file"):
        build_index([str(path)])


@pytest.mark.parametrize("by", [b"one" * 2, b"six"], ids=["longer", "of the same length"])
def test_a_file_that_is_being_written(
    write_records: Write, monkeypatch: pytest.MonkeyPatch, by: bytes
) -> None:
    path = write_records("a.tfrecord", [b"one"])

    def and_write(*args: object) -> object:
        found = framing.scan(*args)  # type: ignore[arg-type]
        write_records("a.tfrecord", [by])
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr("infeed_server.sources.index.scan", and_write)
    with pytest.raises(SourceError, match="changed while it was indexed"):
        build_index([str(path)])
    assert not index_of(path).exists()


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot open .*gone\.tfrecord.*No such file"):
        build_index([str(tmp_path / "gone.tfrecord")])


def test_files_through_gfile(write_records: Write, cache_folder: Path) -> None:
    records = [os.urandom(size) for size in (3, 100_000, 0, 17)]
    path = write_records("a.tfrecord", records)
    remote = f"file://{path}"
    assert tf.io.gfile.exists(remote)
    index = build_index([remote])
    assert Records(index, {}).read(np.arange(4))["record"].tolist() == records
    assert index.identity == build_index([str(path)]).identity
    assert build_index([remote]).files[0].cached
    assert len(list(cache_folder.iterdir())) == 1
