"""The checksum against what stream.proto says of it, and against the damage that it is for."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.checksum import ROW_WORDS, checksum

ROW = 8192
"""Bytes."""


def by_hand(data: bytes) -> int:
    """As stream.proto says it, word by word."""
    data += bytes(-len(data) % ROW)
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    columns = [sum(words[column::1024]) % 2**64 for column in range(1024)]
    rows = [sum(words[at : at + 1024]) % 2**64 for at in range(0, len(words), 1024)]
    return zlib.crc32(struct.pack(f"<{len(columns + rows)}Q", *columns, *rows))


def noise(size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def of(data: bytes) -> int:
    return checksum(np.frombuffer(data, np.uint8))


def test_rows_are_as_the_proto_has_them() -> None:
    assert ROW_WORDS == 1024


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 9, ROW - 1, ROW, ROW + 1, 2 * ROW, 5 * ROW + 123, 1 << 20]
)
def test_what_the_proto_says(size: int) -> None:
    data = noise(size)
    assert checksum(data) == by_hand(data.tobytes())
    full = np.full(size, 255, np.uint8)  # sums that overflow
    assert checksum(full) == by_hand(full.tobytes())


@examples(60)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_what_the_proto_says_of_anything(data: bytes, times: int) -> None:
    assert of(data * times) == by_hand(data * times)


def test_it_does_not_change() -> None:
    """Figures that any implementation may be held to."""
    assert of(b"") == by_hand(b"") == zlib.crc32(bytes(ROW))
    assert of(b"infeed") == by_hand(b"infeed") == 0x334F68D1
    assert of(bytes(range(256)) * 100) == by_hand(bytes(range(256)) * 100) == 0x7D701C86


@pytest.mark.parametrize("shift", range(1, 9))
def test_views_that_begin_anywhere(shift: int) -> None:
    data = noise(3 * ROW + 100)
    view = data[shift : shift + 2 * ROW + 50]
    assert checksum(view) == by_hand(view.tobytes())
    view.flags.writeable = False
    before = data.copy()
    assert checksum(view) == by_hand(view.tobytes())
    np.testing.assert_array_equal(data, before)


DATA = noise(4 * ROW + 1000)
RIGHT = checksum(DATA)


@examples(300)
@given(st.lists(st.integers(0, 8 * len(DATA) - 1), min_size=1, max_size=3, unique=True))
def test_up_to_three_flips(bits: list[int]) -> None:
    """Fewer than four can never cancel out in both directions."""
    damaged = DATA.copy()
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    assert checksum(damaged) != RIGHT


@examples(200)
@given(
    st.integers(0, len(DATA) - 1),
    st.integers(1, 4 * ROW),
    st.sampled_from(["zeros", "noise", "inverted", "shifted", "reversed"]),
)
def test_runs_of_damage(begin: int, length: int, kind: str) -> None:
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
        assert checksum(damaged) != RIGHT


@examples(200)
@given(st.sampled_from([8, 64, 512, 1460, 4096, ROW]), st.data())
def test_pieces_swapped_or_repeated(size: int, data: st.DataObject) -> None:
    """Words, lines of a cache, packets, pages, rows."""
    pieces = st.integers(0, len(DATA) // size - 1)
    first, second = data.draw(st.lists(pieces, min_size=2, max_size=2, unique=True))
    a = slice(first * size, (first + 1) * size)
    b = slice(second * size, (second + 1) * size)
    for swap in (True, False):
        damaged = DATA.copy()
        damaged[b] = DATA[a]
        if swap:
            damaged[a] = DATA[b]
        assert checksum(damaged) != RIGHT


@examples(50)
@given(st.integers(0, len(DATA) - 2), st.integers(1, ROW))
def test_bytes_that_are_missing(begin: int, count: int) -> None:
    """What follows moves up."""
    assert checksum(np.delete(DATA, slice(begin, begin + count))) != RIGHT


def test_real_values_damaged_in_their_high_bits() -> None:
    """Floats of one exponent, where sums have the least to go by."""
    values = np.linspace(1, 2, 8192, dtype=np.float32)
    right = checksum(values.view(np.uint8))
    for index in (0, 1, 4095, 8191):
        for bit in range(32):
            damaged = values.copy()
            damaged.view(np.uint32)[index] ^= np.uint32(1 << bit)
            assert checksum(damaged.view(np.uint8)) != right
