"""Refusals of the compiled decoder: what is unusual, and all that TensorFlow refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.native.reference import (
    Case,
    cases,
    decoded,
    encode,
    expected,
    infeed_jpeg,
    some_pixels,
)

PIXELS = some_pixels(40, 60, 3)
RECORD = encode(PIXELS, quality=80, subsampling="4:2:0")
WHOLE = (0, 0, 40, 60)


def status_of(record: bytes, window: tuple[int, int, int, int] = WHOLE) -> str:
    return decoded(Case(record, window, 0, (30, 50)))[1]


def changed(marker: bytes, offset: int, *values: int, record: bytes = RECORD) -> bytes:
    """Returns a record with other bytes, counted from a marker."""
    begin = record.index(marker) + offset
    return record[:begin] + bytes(values) + record[begin + len(values) :]


def large_dc() -> bytes:
    """Returns two blocks, each with a first coefficient that is 32767 above the last one's."""
    record = changed(b"\xff\xc4", 32, 15, record=encode(PIXELS[:8, :16, 0]))
    scan = bytes.fromhex("ff00 7f ff00 af f7 ff00 fa ffd9")
    return record[: record.index(b"\xff\xda") + 10] + scan


def two_frames() -> bytes:
    begin = RECORD.index(b"\xff\xc0")
    return RECORD[: begin + 19] + RECORD[begin:]


def short_segments(**options: Any) -> Iterator[bytes]:
    """Yields records with one segment that lacks its last bytes."""
    record = encode(PIXELS, quality=80, **options)
    begin = record.index(b"\xff\xda")
    for marker in range(0xD0, 0xD8):
        end = record.find(bytes([0xFF, marker]), begin)
        for cut in range(1, 6) if end > 0 else ():
            yield record[: end - cut] + record[end:]


@pytest.mark.parametrize(
    ("record", "status"),
    [
        pytest.param(encode(PIXELS, progressive=True), "progressive", id="progressive"),
        pytest.param(encode(PIXELS, keep_rgb=True), "other colour space", id="RGB"),
        pytest.param(changed(b"\xff\xc0", 1, 0xC9), "other coding", id="arithmetic"),
        pytest.param(changed(b"\xff\xc0", 4, 12), "other precision", id="12 bits"),
        pytest.param(changed(b"\xff\xc0", 11, 0x12), "other sampling", id="4:4:0"),
        pytest.param(encode(PIXELS[:, :4]), "too small or too large", id="4 wide"),
        pytest.param(changed(b"\xff\xc0", 6, 0), "too small or too large", id="no rows"),
        pytest.param(changed(b"\xff\xc0", 5, 99, 9, 99, 9), "too small or too large", id="512 MiB"),
        pytest.param(two_frames(), "damaged", id="two frames"),
        pytest.param(b"", "other format", id="empty"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "other format", id="PNG"),
    ],
)
def test_unusual_picture_is_refused_by_its_header(record: bytes, status: str) -> None:
    assert status_of(record) == status
    assert infeed_jpeg.read_headers([record]).tolist() == [[0, 0]]


@pytest.mark.parametrize("window", [(-1, 0, 5, 5), (0, 0, 41, 5), (0, 56, 5, 5), (0, 0, 0, 5)])
def test_window_outside_of_the_picture_is_refused(window: tuple[int, int, int, int]) -> None:
    assert status_of(RECORD, window) == "window outside of the picture"


def test_window_above_a_cut_is_refused() -> None:
    assert status_of(RECORD, (0, 0, 8, 8)) == "decoded"
    assert status_of(RECORD[:-2], (0, 0, 8, 8)) == "damaged"


def test_scan_that_is_far_too_short_is_refused() -> None:
    record = changed(b"\xff\xc0", 5, 0, 16, 0xFF, 0xDC)  # 16 rows of 65,500 pixels
    assert status_of(record, (0, 65_492, 16, 8)) == "damaged"


def test_every_cut_is_refused() -> None:
    assert {status_of(RECORD[:size]) for size in range(2, len(RECORD))} == {"damaged"}


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(changed(b"\xff\xc4", 12, 2, 0), id="a code of ones alone"),
        pytest.param(next(short_segments(restart_marker_blocks=3)), id="a short segment"),
        pytest.param(
            encode(PIXELS, restart_marker_rows=1).replace(b"\xff\xd1", b"\xff\xd0"), id="RST0 twice"
        ),
    ],
)
def test_damage_that_decodes_otherwise_is_refused(record: bytes) -> None:
    assert status_of(record) == "damaged"


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(RECORD + b"\xff\xd8 more", id="bytes behind the picture"),
        pytest.param(changed(b"\xff\xda", 11, 0, 0, 0), id="no spectrum"),
        pytest.param(
            changed(b"\xff\xda", 7, 1, record=changed(b"\xff\xc0", 13, 1)), id="an id twice"
        ),
        pytest.param(large_dc(), id="a coefficient of 17 bits"),
    ],
)
def test_what_tensorflow_ignores_is_ignored(record: bytes) -> None:
    (size,) = infeed_jpeg.read_headers([record]).tolist()
    case = Case(record, (0, 0, *size), 0, tuple(size))
    pixels, status = decoded(case)
    assert status == "decoded"
    np.testing.assert_array_equal(pixels, expected(case))


@pytest.mark.parametrize("restarts", ["restart_marker_rows", "restart_marker_blocks"])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:0"])
def test_short_segments_have_tensorflows_pixels(subsampling: str, restarts: str) -> None:
    for record in short_segments(subsampling=subsampling, **{restarts: 1}):
        case = Case(record, WHOLE, 0, WHOLE[2:])
        pixels, status = decoded(case)
        if status == "decoded":
            np.testing.assert_array_equal(pixels, expected(case))


@pytest.mark.parametrize(
    "part", [(8, -2, 0, 2**31 - 1), (-2, 8, 2**31 - 1, 0), (7, 8, 0, 0), (8, 8, 1, 0), (8, 9, 0, 2)]
)
def test_part_outside_of_the_resized_window_is_refused(part: tuple[int, int, int, int]) -> None:
    assert decoded(Case(RECORD, WHOLE, 0, (8, 8), part))[1] == "window outside of the picture"


def damage(record: bytes, rng: np.random.Generator) -> bytes:
    """Cuts a record, or changes one to three of its bytes."""
    changed = bytearray(record)
    if rng.random() < 0.2:
        return record[: rng.integers(len(record))]
    for _ in range(rng.integers(1, 4)):
        place = rng.integers(2, len(record) if rng.random() < 0.5 else min(len(record), 700))
        changed[place] = 255 if rng.random() < 0.2 else rng.integers(256)
    return bytes(changed)


def compare_damaged(records: list[bytes], count: int, seed: int) -> None:
    """Fails if a damaged record is decoded that TensorFlow refuses, or to other pixels."""
    rng = np.random.default_rng(seed)
    accepted = 0
    for number in range(count):
        record = damage(records[number % len(records)], rng)
        ((height, width),) = infeed_jpeg.read_headers([record]).tolist()
        if not 0 < height * width < 4_000_000:
            continue
        for case in cases(record, height, width, number, 1):
            pixels, status = decoded(case)
            if status == "decoded":
                accepted += 1
                np.testing.assert_array_equal(pixels, expected(case), f"number {number}")
    assert accepted > count / 20


def some_records() -> list[bytes]:
    options: list[dict[str, Any]] = [
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2", "optimize": True},
        {"subsampling": "4:2:0", "restart_marker_rows": 1},
    ]
    return [RECORD, encode(PIXELS[..., 0]), *(encode(PIXELS, **option) for option in options)]


def test_damaged_pictures_have_tensorflows_pixels() -> None:
    compare_damaged(some_records(), 500, 1)


@pytest.mark.slow
def test_10000_damaged_photos_have_tensorflows_pixels(photos: Any) -> None:
    records = [(photos.folder / name).read_bytes() for name in photos.labels]
    compare_damaged(records, 10_000, 2)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("windows", np.zeros((1, 4), np.int64)),
        ("flips", np.zeros(2, np.uint8)),
        ("out", np.zeros((1, 3, 8, 8), np.uint8).transpose(0, 2, 3, 1)),
        ("out", np.zeros((1, 0, 8, 3), np.uint8)),
        ("out", np.zeros((1, 8, 0, 3), np.uint8)),
        ("threads", 0),
    ],
)
def test_wrong_argument_is_refused_by_name(name: str, array: Any) -> None:
    arrays = {
        "windows": np.array([WHOLE], np.int32),
        "flips": np.zeros(1, np.uint8),
        "out": np.zeros((1, 8, 8, 3), np.uint8),
    } | {name: array}
    with pytest.raises(ValueError, match=f"{name}: .*; needs"):
        infeed_jpeg.decode_batch([RECORD], **{"threads": 1, **arrays})


def test_orientation_that_exif_has_not_is_refused() -> None:
    out, window = np.zeros((1, 8, 8, 3), np.uint8), np.array([WHOLE], np.int32)
    for orientation in (0, 9):
        wrong = np.full(1, orientation, np.uint8)
        with pytest.raises(ValueError, match=r"orientations: .* 1 to 8"):
            infeed_jpeg.decode_batch(
                [RECORD], window, np.zeros(1, np.uint8), out, 1, orientations=wrong
            )
