"""The checksum equals its definition in stream.proto, and detects damage."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.wire.checksum import ROW_WORDS, checksum

ROW = 8192
"""Bytes."""


def reference(data: bytes) -> int:
    """Computes the checksum as stream.proto defines it, word by word."""
    data += bytes(-len(data) % ROW)
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    columns = [sum(words[column::1024]) % 2**64 for column in range(1024)]
    rows = [sum(words[begin : begin + 1024]) % 2**64 for begin in range(0, len(words), 1024)]
    return zlib.crc32(struct.pack(f"<{len(columns + rows)}Q", *columns, *rows))


def noise(size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def checksum_of(data: bytes) -> int:
    return checksum(np.frombuffer(data, np.uint8))


def test_row_size() -> None:
    assert ROW_WORDS == 1024


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 9, ROW - 1, ROW, ROW + 1, 2 * ROW, 5 * ROW + 123, 1 << 20]
)
def test_checksum_equals_its_definition(size: int) -> None:
    data = noise(size)
    assert checksum(data) == reference(data.tobytes())
    full = np.full(size, 255, np.uint8)  # sums that overflow
    assert checksum(full) == reference(full.tobytes())


@examples(60)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_checksum_of_any_data_equals_its_definition(data: bytes, times: int) -> None:
    assert checksum_of(data * times) == reference(data * times)


def test_reference_values() -> None:
    """Reference values for any implementation."""
    assert checksum_of(b"") == reference(b"") == zlib.crc32(bytes(ROW))
    assert checksum_of(b"infeed") == reference(b"infeed") == 0x334F68D1
    assert checksum_of(bytes(range(256)) * 100) == reference(bytes(range(256)) * 100) == 0x7D701C86


@pytest.mark.parametrize("shift", range(1, 9))
def test_unaligned_views(shift: int) -> None:
    data = noise(3 * ROW + 100)
    view = data[shift : shift + 2 * ROW + 50]
    assert checksum(view) == reference(view.tobytes())
    view.flags.writeable = False
    before = data.copy()
    assert checksum(view) == reference(view.tobytes())
    np.testing.assert_array_equal(data, before)


DATA = noise(4 * ROW + 1000)
EXPECTED = checksum(DATA)


@examples(300)
@given(st.lists(st.integers(0, 8 * len(DATA) - 1), min_size=1, max_size=3, unique=True))
def test_up_to_three_bit_flips_are_detected(bits: list[int]) -> None:
    """Fewer than four can never cancel out in both directions."""
    damaged = DATA.copy()
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    assert checksum(damaged) != EXPECTED


@examples(200)
@given(
    st.integers(0, len(DATA) - 1),
    st.integers(1, 4 * ROW),
    st.sampled_from(["zeros", "noise", "inverted", "shifted", "reversed"]),
)
def test_damaged_runs_are_detected(begin: int, length: int, kind: str) -> None:
    damaged = DATA.copy()
    run = damaged[begin : begin + length]
    before = run.copy()
    run[:] = {
        "zeros": np.zeros_like(run),
        "noise": noise(len(run), seed=1),
        "inverted": ~run,
        "shifted": np.roll(run, 1),
        "reversed": run[::-1].copy(),
    }[kind]
    if (run != before).any():
        assert checksum(damaged) != EXPECTED


@examples(200)
@given(st.sampled_from([8, 64, 512, 1460, 4096, ROW]), st.data())
def test_swapped_and_repeated_pieces_are_detected(size: int, data: st.DataObject) -> None:
    """Words, cache lines, packets, pages, rows."""
    pieces = st.integers(0, len(DATA) // size - 1)
    first, second = data.draw(st.lists(pieces, min_size=2, max_size=2, unique=True))
    a = slice(first * size, (first + 1) * size)
    b = slice(second * size, (second + 1) * size)
    for swap in (True, False):
        damaged = DATA.copy()
        damaged[b] = DATA[a]
        if swap:
            damaged[a] = DATA[b]
        assert checksum(damaged) != EXPECTED


@examples(50)
@given(st.integers(0, len(DATA) - 2), st.integers(1, ROW))
def test_missing_bytes_are_detected(begin: int, count: int) -> None:
    assert checksum(np.delete(DATA, slice(begin, begin + count))) != EXPECTED


def test_bit_flips_in_similar_floats_are_detected() -> None:
    """Floats with one exponent, whose sums differ least."""
    values = np.linspace(1, 2, 8192, dtype=np.float32)
    expected = checksum(values.view(np.uint8))
    for index in (0, 1, 4095, 8191):
        for bit in range(32):
            damaged = values.copy()
            damaged.view(np.uint32)[index] ^= np.uint32(1 << bit)
            assert checksum(damaged.view(np.uint8)) != expected
