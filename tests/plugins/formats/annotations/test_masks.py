"""Masks in a folder: the indices of palettes, and folders that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from infeed import SampleError, SourceError
from infeed_server.transforms import DecodeImage

Parse = Callable[..., dict[str, Any]]

MASK = (np.arange(800).reshape(20, 40) % 7).astype(np.uint8)


def write(path: Path, colours: int = 0, mask: Any = MASK) -> None:
    """Writes a mask, in greys or with a palette of some colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(mask)
    if colours:
        image = Image.fromarray(mask, "L").convert("P")
        image.putdata(mask.flatten().tolist())
        image.putpalette(np.random.default_rng(0).integers(0, 256, 3 * colours).tolist())
        image.info["transparency"] = 0
    image.save(path)


def decode(content: bytes) -> Any:
    key = tf.constant([0, 0], tf.int64)
    return DecodeImage(field="mask", channels=1).apply({"mask": tf.constant(content)}, key)


@pytest.mark.parametrize("colours", [0, 2, 4, 16, 256])
def test_pixels_are_classes_with_any_palette(
    open_labels: Any, tmp_path: Path, parse: Parse, colours: int
) -> None:
    mask = (MASK % min(colours or 7, 7)).astype(np.uint8)
    write(tmp_path / "masks/a.png", colours, mask)
    source = open_labels({"masks": "masks"})
    np.testing.assert_array_equal(decode(parse(source, 0)["mask"])["mask"][..., 0], mask)


def test_greys_of_one_bit_are_0_and_1(open_labels: Any, tmp_path: Path, parse: Parse) -> None:
    write(tmp_path / "masks/a.png", mask=MASK > 2)
    source = open_labels({"masks": "masks"})
    np.testing.assert_array_equal(decode(parse(source, 0)["mask"])["mask"][..., 0], MASK > 2)


def test_a_picture_without_a_mask_is_a_bad_sample(open_labels: Any, tmp_path: Path) -> None:
    write(tmp_path / "masks/in/c.png")
    source = open_labels({"masks": "masks"})
    assert source.read(np.array([2]))["mask"][0].startswith(b"\x89PNG")
    with pytest.raises(SampleError, match=r"has no label: .*a.jpg is not in .*masks"):
        source.read(np.array([0]))


@pytest.mark.parametrize(("size", "exif"), [((20, 40), "ignore"), ((40, 20), "apply")])
def test_the_size_of_masks_tells_what_exif_fits(
    open_labels: Any, tmp_path: Path, pictures: Path, size: Any, exif: str
) -> None:
    stated = Image.Exif()
    stated[0x0112] = 8
    Image.new("RGB", (40, 20)).save(pictures / "a.jpg", exif=stated)
    write(tmp_path / "masks/a.png", mask=np.zeros(size, np.uint8))
    assert open_labels({"masks": "masks"}).exif == exif


def test_folders_that_do_not_fit_are_refused(open_labels: Any, tmp_path: Path) -> None:
    write(tmp_path / "masks/x.png")
    with pytest.raises(SourceError, match=r"has a mask in .*, such as a.png; .* like 'x.png'"):
        open_labels({"masks": "masks"})
    write(tmp_path / "masks/a.jpg")
    with pytest.raises(SourceError, match=r"masks in .* are not PNGs: a.jpg; write PNGs"):
        open_labels({"masks": "masks"})


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.full((20, 40), 300, np.uint16), "has 16 bits, and only the upper 8 would be read"),
        (np.zeros((20, 40, 3), np.uint8), "is in colour or has alpha"),
        (np.zeros((20, 40, 2), np.uint8), "is in colour or has alpha"),
    ],
)
def test_pixels_that_are_no_classes_are_a_bad_sample(
    open_labels: Any, tmp_path: Path, mask: Any, problem: str
) -> None:
    write(tmp_path / "masks/a.png", mask=mask)
    with pytest.raises(SampleError, match=rf"mask .*masks/a.png {problem}"):
        open_labels({"masks": "masks"}).read(np.array([0]))
