"""Bits of the compiled decoder: TensorFlow's, for each picture that it accepts."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.native.reference import cases, decoded, encode, expected, infeed_jpeg, some_pixels

SAMPLINGS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:2:0": {"subsampling": "4:2:0"},
    "grey": {},
}


def compare(record: bytes, height: int, width: int, seed: int, count: int = 2) -> Counter[str]:
    """Counts the statuses of the cases, and fails if a decoded one has other bits."""
    statuses: Counter[str] = Counter()
    for case in cases(record, height, width, seed, count):
        pixels, status = decoded(case)
        statuses[status] += 1
        if status == "decoded":
            np.testing.assert_array_equal(pixels, expected(case), str(case[1:]))
    return statuses


def test_photos_have_tensorflows_bits(few_photos: SimpleNamespace) -> None:
    for seed, name in enumerate(few_photos.labels):
        record = (few_photos.folder / name).read_bytes()
        ((height, width),) = infeed_jpeg.read_headers([record]).tolist()
        assert compare(record, height, width, seed, 3) == {"decoded": 10}, name


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_small_pictures_have_tensorflows_bits(sampling: str) -> None:
    rng = np.random.default_rng(1)
    statuses: Counter[str] = Counter()
    for side in range(1, 41):
        height, width = (side, int(rng.integers(1, 41)))[:: 1 - 2 * (side % 2)]
        pixels = some_pixels(height, width, side, is_grey=sampling == "grey")
        options = SAMPLINGS[sampling] | {"quality": 95, "optimize": bool(side % 3)}
        statuses += compare(encode(pixels, **options), height, width, side)
    refused = statuses.pop("too small or too large", 0)
    assert list(statuses) == ["decoded"]
    assert refused == 0 or sampling in ("4:2:2", "4:2:0")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("restarts", [{"restart_marker_rows": 1}, {"restart_marker_blocks": 3}])
def test_restart_markers_change_no_bit(sampling: str, restarts: dict[str, int]) -> None:
    pixels = some_pixels(131, 187, 5, is_grey=sampling == "grey")
    options = SAMPLINGS[sampling] | restarts
    assert set(compare(encode(pixels, **options), 131, 187, 7, 12)) == {"decoded"}


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_quality_has_tensorflows_bits(sampling: str) -> None:
    for quality in range(1, 101, 3):
        pixels = some_pixels(45, 77, quality, is_grey=sampling == "grey")
        options = SAMPLINGS[sampling] | {"quality": quality, "optimize": bool(quality % 2)}
        assert set(compare(encode(pixels, **options), 45, 77, quality, 1)) == {"decoded"}


@pytest.mark.parametrize("orientation", range(2, 9))
def test_turned_pictures_have_tensorflows_bits(orientation: int) -> None:
    for sampling, options in SAMPLINGS.items():
        pixels = some_pixels(61, 87, orientation, is_grey=sampling == "grey")
        sides = (61, 87) if orientation < 5 else (87, 61)
        for case in cases(encode(pixels, **options), *sides, orientation):
            turned = case._replace(orientation=orientation)
            made, status = decoded(turned)
            assert status == "decoded"
            np.testing.assert_array_equal(made, expected(turned), str(turned[1:]))


def test_threads_change_no_bit() -> None:
    records = [encode(some_pixels(60, 90, seed), quality=90) for seed in range(30)]
    windows = np.array([(5, 7, 50, 80)] * 30, np.int32)
    flips = np.arange(30, dtype=np.uint8) % 2
    outs = []
    for threads in (1, 2, 7):
        out = np.zeros((30, 33, 41, 3), np.uint8)
        assert not infeed_jpeg.decode_batch(records, windows, flips, out, threads).any()
        outs.append(out)
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
