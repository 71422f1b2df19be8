"""The walk over a tar's headers: formats, what is refused, and any damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed import SourceError
from infeed_formats.webdataset import members
from infeed_formats.webdataset.members import BLOCK, Member, MemberScan, TruncatedTar

Write = Callable[..., Path]

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
LONG = "folder/" * 10 + "name" * 20
"""Longer than the field of the name, and not too long for the prefix of USTAR."""


class Content:
    """The content of a tar, in the place of its handle."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        return self.content[offset : offset + size]


def scan(content: bytes, path: str = "a.tar") -> list[Member]:
    handle: Any = Content(content)
    return list(MemberScan(handle, path, len(content)).members())


def contents(tar: Path | bytes) -> dict[str, bytes]:
    data = tar if isinstance(tar, bytes) else tar.read_bytes()
    return {name: data[offset : offset + size] for name, _, offset, size, _ in scan(data)}


def header(path: Path, **changes: bytes) -> None:
    """Changes fields of the first header, with a good checksum."""
    block = bytearray(path.read_bytes())
    places = {"name": 0, "size": 124, "kind": 156, "magic": 257, "prefix": 345}
    for name, value in changes.items():
        block[places[name] : places[name] + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:BLOCK])
    path.write_bytes(block)


@pytest.mark.parametrize("tar_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(("window", "threshold"), [(8 << 20, 64 << 10), (512, 0), (512, 9999)])
def test_members_are_those_of_tarfile(
    write_tar: Write,
    tar_format: int,
    window: int,
    threshold: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "_SCAN_WINDOW", window)
    monkeypatch.setattr(members, "_SKIP_WINDOW", 512)
    monkeypatch.setattr(members, "_SKIP_THRESHOLD", threshold)
    expected = {
        f"{LONG}/{number}.jpg": bytes([number]) * size
        for number, size in enumerate([0, 1, 511, 512, 513, 5000])
    }
    expected |= {"kö.txt": b"utf-8", "short": b"", "./a/b.c": b"x"}
    path = write_tar("a.tar", expected.items(), tar_format)
    assert contents(path) == expected


def test_sizes_of_all_formats(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.bin", b"x" * 300)], tarfile.USTAR_FORMAT)
    for size in (b"454 ", b"00000000454\0", b"\x80" + (300).to_bytes(11, "big")):
        header(path, size=size.ljust(12, b"\0"))
        assert contents(path) == {"a.bin": b"x" * 300}
    for size in (b"9", b"-454", b"\xff" * 12, b"\x80\x01" + bytes(10)):
        header(path, size=size.ljust(12, b"\0"))
        with pytest.raises(SourceError, match="its first header is damaged: the size"):
            scan(path.read_bytes())


def test_the_size_of_a_pax_header_comes_first(write_tar: Write) -> None:
    path = write_tar("a.tar", [], tarfile.PAX_FORMAT)
    info = tarfile.TarInfo("a.bin")
    info.pax_headers = {"size": "700", "comment": "12 path=b.bin\n"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
        assert tar.fileobj is not None
        tar.fileobj.write(b"x" * 700 + bytes(324))
    assert contents(path) == {"a.bin": b"x" * 700}


def test_global_headers_are_for_all_members(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", pax_headers={"comment": "abc"}) as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    assert contents(path) == {"a.txt": b""}
    with tarfile.open(path, "w", pax_headers={"GNU.sparse.major": "1"}) as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(SourceError, match=r"sparse \(GNU.sparse.major\); write the tar without"):
        scan(path.read_bytes())


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (tarfile.SYMTYPE, "'a.txt' is a link; write the tar with --dereference"),
        (tarfile.LNKTYPE, "'a.txt' is a link; write the tar with --dereference"),
        (tarfile.GNUTYPE_SPARSE, "has the unknown type .*, such as sparse"),
        (b"M", "has the unknown type .*; write the tar as --format=pax without --sparse"),
        (tarfile.DIRTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (b"V", ""),
    ],
)
def test_members_that_are_no_files(write_tar: Write, kind: bytes, problem: str) -> None:
    path = write_tar("a.tar", [("a.txt", b""), ("b.txt", b"x")], tarfile.GNU_FORMAT)
    header(path, kind=kind)
    if problem:
        with pytest.raises(SourceError, match=problem):
            scan(path.read_bytes())
    else:
        assert contents(path) == {"b.txt": b"x"}


def test_gnu_has_no_prefix(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.txt", b"")], tarfile.GNU_FORMAT)
    header(path, prefix=b"01234567890\0")  # the time of the last access
    assert contents(path) == {"a.txt": b""}


@pytest.mark.parametrize(
    ("compress", "command"),
    [
        (gzip.compress, "gunzip"),
        (bz2.compress, "bunzip2"),
        (lzma.compress, "xz -d"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data, "zstd -d"),
    ],
    ids=["gz", "bz2", "xz", "zst"],
)
def test_compressed_tars_are_refused(
    write_tar: Write, compress: Callable[[bytes], bytes], command: str
) -> None:
    path = write_tar("a.tar", [("a.txt", b"x")])
    path.write_bytes(compress(path.read_bytes()))
    message = f"{path} is compressed, so it has no random access; unpack it: {command} < OLD > NEW"
    with pytest.raises(SourceError) as caught:
        scan(path.read_bytes(), str(path))
    assert caught.value.message == message


def test_joined_tars_are_refused(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.txt", b"x")])
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(SourceError, match=r"byte 1024: data .* 1 whole member"):
        scan(path.read_bytes())


def test_any_damage_is_found_or_harmless() -> None:
    """Each byte of each header, flipped in two ways. A name of an extension has no checksum: of
    such a byte the name alone may differ."""
    for tar_format in FORMATS.values():
        expected = {"a.jpg": b"1" * 600, f"{LONG}.cls": b"2", "b.jpg": b"3" * 512}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
            for name, content in expected.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        good = buffer.getvalue()
        found = scan(good)
        data = [range(member.offset, member.offset + member.size) for member in found]
        headers = [
            place
            for place in range(found[-1].offset + 1024 + 512)
            if not any(place in part for part in data)
        ]
        for place in headers:
            for flip in (0x01, 0x80):
                changed = bytearray(good)
                changed[place] ^= flip
                try:
                    result = contents(bytes(changed))
                except (SourceError, TruncatedTar):
                    continue
                assert [*result.values()] == [*expected.values()]
                names = [one == other for one, other in zip(result, expected, strict=True)]
                assert sum(names) >= 2


def test_any_truncation_inside_of_a_member_is_found(
    write_tar: Write, caplog: pytest.LogCaptureFixture
) -> None:
    expected = [("a.jpg", b"1" * 600), (f"{LONG * 2}.cls", b"2"), ("b.jpg", b"3" * 512)]
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        good = write_tar("a.tar", expected, tar_format).read_bytes()
        ends = {-(-(found.offset + found.size) // BLOCK) * BLOCK: found for found in scan(good)}
        for size in range(0, len(good), 256):
            caplog.clear()
            if size in ends:
                assert scan(good[:size])[-1] == ends[size]
                assert "a.tar ends without an end mark" in caplog.text
            elif size >= max(ends) + BLOCK:  # the end mark is there
                assert contents(good[:size]) == dict(expected)
                assert not caplog.text
            else:
                with pytest.raises(TruncatedTar):
                    scan(good[:size])
