"""Smaller images: one decode, one reduction of the pixels, one encode, by Pillow.

Pillow is a part of the server, reads the profiles and the orientation, and reduces pixels well;
simplejpeg uses the same decoder and encoder, and has none of these.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import PIL
from PIL import Image, ImageCms, features

from infeed_server.pack.options import PackOptions

_MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG\r\n\x1a\n": "png"}
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation → what makes it upright."""

SMALL = "kept, small enough"
LARGER = "kept, the result is larger"
OTHER_MODE = "kept, a PNG that is no RGB (masks, depths, transparency)"
OTHER_FORMAT = "kept, neither JPEG nor PNG"
TURNED = "kept with an EXIF orientation, which decoders do not apply"
REDUCED = "reduced"
UPRIGHT = "reduced and turned as EXIF says"
PROFILE = "reduced and converted from an ICC profile to sRGB"
CMYK = "reduced and converted from CMYK to RGB"

VERSIONS = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}"
"""What the bytes of encoded images depend on."""


class BadImageError(ValueError):
    """An image cannot be decoded."""


class Shrunk(NamedTuple):
    """An image, reduced or as it was."""

    content: bytes
    changes: tuple[str, ...]
    pixels: Image.Image | None = None
    """The pixels before they were encoded; None if the image is as it was."""


def image_kind(content: object) -> str:
    """Returns `jpg` or `png` if a value begins as such a file, else an empty string."""
    if not isinstance(content, bytes):
        return ""
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "")


def shrink(content: bytes, options: PackOptions) -> Shrunk:
    """Returns the image with so many pixels at its short side, or as it is where that is not
    smaller, in pixels and in bytes. Raises `BadImageError`."""
    short_side = options.short_side or 0
    with _decoding(), Image.open(io.BytesIO(content)) as image:
        if image.format not in ("JPEG", "MPO", "PNG"):
            return Shrunk(content, (OTHER_FORMAT,))
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
        kept = () if turn is None else (TURNED,)
        is_small = min(image.size) <= short_side
        if is_small or (image.format == "PNG" and image.mode != "RGB"):
            image.load()  # as the check of its bytes
            return Shrunk(content, (SMALL if is_small else OTHER_MODE, *kept))
        scale = short_side / min(image.size)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        # A large JPEG is decoded at a half, a quarter or an eighth, still twice the result.
        image.draft(image.mode, (2 * size[0], 2 * size[1]))
        image.load()
        pixels, changes = _to_rgb(image)
    pixels = pixels.resize(size, Image.Resampling.LANCZOS)
    if turn is not None:
        pixels, changes = pixels.transpose(turn), (*changes, UPRIGHT)
    pixels.info.clear()
    out = io.BytesIO()
    pixels.save(out, "JPEG", quality=options.quality, subsampling="4:2:0", optimize=True)
    if len(out.getvalue()) >= len(content):
        return Shrunk(content, (LARGER, *kept))
    return Shrunk(out.getvalue(), (REDUCED, *changes), pixels)


def decode(content: bytes) -> Image.Image:
    """Returns the pixels. Raises `BadImageError`."""
    with _decoding(), Image.open(io.BytesIO(content)) as image:
        image.load()
        copy: Image.Image = image.copy()
        return copy


def _to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Returns the image in sRGB, or grey, and what was converted."""
    if image.mode == "L":
        return image, ()
    changes = (CMYK,) if image.mode == "CMYK" else ()
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
        if "sRGB" not in ImageCms.getProfileDescription(profile):
            srgb = ImageCms.createProfile("sRGB")
            converted = ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB")
            if converted is not None:
                return converted, (*changes, PROFILE)
    except (KeyError, OSError, ImageCms.PyCMSError):  # none, or one for other colours
        pass
    return image.convert("RGB"), changes


@contextmanager
def _decoding() -> Iterator[None]:
    """Turns what Pillow raises for invalid bytes into `BadImageError`."""
    try:
        yield
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError) as error:
        raise BadImageError(str(error) or type(error).__name__) from error
