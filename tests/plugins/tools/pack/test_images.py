"""Reduced images: sizes, orientation, colours, and images left unchanged."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageCms

from infeed_tools.pack import images
from infeed_tools.pack.images import BadImageError, decode, shrink
from infeed_tools.pack.options import PackOptions

OPTIONS = PackOptions(short_side=32)


def encoded(
    mode: str = "RGB", kind: str = "JPEG", size: tuple[int, int] = (96, 64), **more: object
) -> bytes:
    """Returns an image that is red on the left, black on the right, and noisy."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 30, (size[1], size[0], 3), np.uint8)
    pixels[:, : size[0] // 2, 0] += 200
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **({"quality": 95} | more))
    return out.getvalue()


def test_short_side_is_reduced_and_metadata_is_left_out() -> None:
    shrunk = shrink(encoded(comment=b"a comment"), OPTIONS)
    image = decode(shrunk.content)
    assert (image.size, image.mode, shrunk.changes) == ((48, 32), "RGB", (images.REDUCED,))
    assert image.getpixel((5, 16))[0] > 180
    assert image.getpixel((43, 16))[0] < 60
    assert not {"comment", "exif", "icc_profile"} & image.info.keys()
    assert shrink(encoded("L"), OPTIONS).pixels.mode == "L"


def test_restart_markers_change_no_pixel() -> None:
    shrunk = [
        shrink(encoded(), PackOptions(short_side=32, restart_markers=choice)).content
        for choice in (False, True)
    ]
    assert [content.count(b"\xff\xd0") for content in shrunk] == [0, 1]  # between 2 rows of blocks
    plain, marked = map(tf.io.decode_jpeg, shrunk)
    np.testing.assert_array_equal(marked, plain)


def test_exif_orientation_is_applied_once() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise: left becomes up
    shrunk = shrink(encoded(exif=exif), OPTIONS)
    image = decode(shrunk.content)
    assert shrunk.changes == (images.REDUCED, images.UPRIGHT)
    assert image.size == (32, 48)
    assert image.getpixel((16, 5))[0] > 180
    assert 0x0112 not in image.getexif()
    content = encoded(exif=exif, size=(40, 30))
    assert shrink(content, OPTIONS)[:2] == (content, (images.SMALL, images.TURNED))


def test_colours_are_converted() -> None:
    assert shrink(encoded("CMYK"), OPTIONS).changes == (images.REDUCED, images.CMYK)
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert shrink(encoded(icc_profile=lab), OPTIONS).changes == (images.REDUCED,)
    assert shrink(encoded(icc_profile=b"no profile"), OPTIONS).changes == (images.REDUCED,)
    assert shrink(encoded(kind="PNG"), OPTIONS).changes == (images.REDUCED,)


@pytest.mark.parametrize(
    ("content", "change"),
    [
        (encoded(size=(50, 32)), images.SMALL),
        (encoded(size=(300, 34), quality=20, optimize=True), images.LARGER),
        (encoded("L", "PNG"), images.OTHER_MODE),
        (encoded("RGBA", "PNG"), images.OTHER_MODE),
        (encoded("P", "PNG"), images.OTHER_MODE),
        (encoded(kind="BMP"), images.OTHER_FORMAT),
    ],
)
def test_images_that_would_not_gain_are_kept(content: bytes, change: str) -> None:
    assert shrink(content, OPTIONS) == (content, (change,), None)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_truncated_image_is_bad_also_if_it_is_small(kind: str) -> None:
    for size in ((96, 64), (30, 30)):
        content = encoded(kind=kind, size=size)
        with pytest.raises(BadImageError):
            shrink(content[: len(content) // 2], OPTIONS)
