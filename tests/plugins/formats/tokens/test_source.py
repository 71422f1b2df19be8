"""The `tokens` source: sequences and windows of Megatron's files, and damaged ones."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.megatron import CODES, write_tokens

from infeed import SourceError
from infeed_formats.tokens.source import TokensReader, TokensSource

Parse = Callable[..., dict[str, Any]]


def open_source(pattern: Path | str, length: int | None = None) -> TokensReader:
    return TokensSource.model_validate({"tokens": pattern, "length": length}).open()


def rows(source: TokensReader, *indices: int) -> list[list[int]]:
    found: list[list[int]] = source.read(np.array(indices))["tokens"].tolist()
    return found


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_sample_is_a_sequence(tmp_path: Path, parse: Parse, dtype: str, prefix: str) -> None:
    write_tokens(tmp_path / "b.idx", [[7]], dtype)
    write_tokens(tmp_path / "a.idx", [[1, 2, 3], [], [4, 100]], dtype, modes=bytes(3))
    source = open_source(f"{prefix}{tmp_path}/*.idx")
    assert len(source) == 4
    for index, expected in enumerate([[1, 2, 3], [], [4, 100], [7]]):
        tokens = parse(source, index)["tokens"]
        assert (tokens.tolist(), tokens.dtype.name) == (expected, dtype)
    assert source.provenance(2).offset == 3 * np.dtype(dtype).itemsize
    assert source.provenance(3).file == f"{prefix}{tmp_path}/b.bin"


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_a_sample_is_a_window(tmp_path: Path, parse: Parse, dtype: str) -> None:
    write_tokens(tmp_path / "a.idx", [[1, 2, 3], [4, 5], [], [6, 7, 8]], dtype)
    write_tokens(tmp_path / "b.idx", [[11, 12, 13]], dtype)
    source = open_source(tmp_path / "*.idx", 3)
    assert rows(source, 2, 0, 1, 1) == [[11, 12, 13], [1, 2, 3], [4, 5, 6], [4, 5, 6]]
    assert len(source) == 3
    assert source.columns["tokens"].shape.as_list() == [3]
    assert source.read(np.array([], int))["tokens"].shape == (0, 3)
    assert parse(source, 0)["tokens"].dtype.name == dtype
    with pytest.raises(SourceError, match="no sequence, or no window of 9 tokens, in 2 files such"):
        open_source(tmp_path / "*.idx", 9)


def test_sequences_in_another_order_make_no_windows(tmp_path: Path) -> None:
    pointers = np.array([4, 0], "<i8").tobytes()
    path = write_tokens(tmp_path / "a.idx", [[1, 2], [3, 4]], pointers=pointers)
    assert rows(open_source(path), 0) == [np.array([3, 4], "<u2").tobytes()]
    with pytest.raises(SourceError, match=r"are not contiguous.*; leave out length"):
        open_source(path, 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"magic": b"MMIDIDX\x00\x01"}, "not an index of tokens: it does not begin with MMIDIDX"),
        ({"version": struct.pack("<Q", 2)}, "its version is 2; known: 1"),
        ({"code": b"\x09"}, "its data type is 9; known: 1 to 8"),
        ({"code": b"\x00"}, "its data type is 0; known: 1 to 8"),
        ({"counts": struct.pack("<QQ", 3, 3)}, "it has 82 bytes, not 94; is it truncated"),
        ({"counts": struct.pack("<QQ", 1 << 63, 3)}, "is it truncated"),
        ({"documents": b""}, "it has 58 bytes, not 82; is it truncated"),
        ({"lengths": np.array([2, -1], "<i4").tobytes()}, "the length of sequence 1 is negative"),
        ({"lengths": np.array([2, 3], "<i4").tobytes()}, "1 is at bytes 4 to 10 of a .bin of 8"),
        ({"pointers": np.array([0, -3], "<i8").tobytes()}, "1 is at bytes -3 to 1 of a .bin of 8"),
        ({"pointers": np.array([0, (1 << 63) - 1], "<i8").tobytes()}, "sequence 1 is at bytes"),
        ({"pointers": np.array([0, 4 - (1 << 32)], "<i8").tobytes()}, "pointers overflow int32"),
    ],
)
def test_damaged_indexes(tmp_path: Path, changes: Any, problem: str) -> None:
    path = write_tokens(tmp_path / "a.idx", [[1, 2], [3, 4]], **changes)
    for length in (None, 2):
        with pytest.raises(SourceError, match=f"{path}.*{problem}"):
            open_source(path, length)


def test_each_changed_byte_of_an_index_is_refused_or_gives_tokens(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.idx", [[1, 2], [3, 4]])
    good = path.read_bytes()
    identities = set()
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        try:
            source = open_source(path)
        except SourceError:
            continue
        source.read(np.arange(len(source)))
        identities.add(source.identity)
    path.write_bytes(good)
    assert open_source(path).identity not in identities


def test_files_that_do_not_fit_each_other(tmp_path: Path) -> None:
    write_tokens(tmp_path / "a.idx", [[1]])
    write_tokens(tmp_path / "b.idx", [[1]], "int32")
    with pytest.raises(
        SourceError, match=r"b.idx has int32, but .*a.idx uint16; serve them as two"
    ):
        open_source(tmp_path / "*.idx")
    (tmp_path / "b.bin").unlink()
    with pytest.raises(SourceError, match=r"cannot open '.*b.bin': No such file"):
        open_source(tmp_path / "b.idx")


def test_identity_and_changes(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.idx", [[1, 2], [3, 4]])
    source = open_source(path)
    (tmp_path / "x").mkdir()
    copy = open_source(write_tokens(tmp_path / "x" / "b.idx", [[1, 2], [3, 4]]))
    assert copy.identity == source.identity
    assert copy.places.stamp != source.places.stamp
    others = {open_source(path, 2).identity, open_source(path, 1).identity}
    others.add(open_source(write_tokens(tmp_path / "c.idx", [[1], [2, 3, 4]])).identity)
    assert len(others | {source.identity}) == 4
    os.utime(path.with_suffix(".bin"), ns=(1, 1))
    with pytest.raises(SourceError, match=r"a.bin changed since"):
        source.read(np.array([0]))
