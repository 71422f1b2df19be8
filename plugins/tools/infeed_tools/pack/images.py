"""Smaller images: decoding, reducing and encoding by Pillow, and figures of the effect.

Pillow is part of the server, reads profiles and orientation, and reduces pixels well; simplejpeg
has the same decoder and encoder, but none of these.
"""

from __future__ import annotations

import io
import math
import struct
import timeit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

import numpy as np
import PIL
import tensorflow as tf
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError, features

from infeed_tools.pack.options import PackOptions

_ORIENTATION = 0x0112

SMALL = "kept, small enough"
LARGER = "kept, the result is larger"
OTHER_MODE = "kept, a PNG that is no RGB (masks, depths, transparency)"
OTHER_FORMAT = "kept, neither JPEG nor PNG"
TURNED = "kept with an EXIF orientation, which most decoders do not apply"
REDUCED = "reduced"
UPRIGHT = "reduced and turned as EXIF says"
PROFILE = "reduced and converted from an ICC profile to sRGB"
CMYK = "reduced and converted from CMYK to RGB"

VERSIONS = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}"
"""Versions on which the bytes of encoded images depend."""


class BadImageError(ValueError):
    """An image cannot be decoded."""


class Shrunk(NamedTuple):
    """An image, reduced or unchanged."""

    content: bytes
    changes: tuple[str, ...]
    pixels: Image.Image | None = None
    """The pixels before encoding; None if the image is unchanged."""


Looked = list[tuple[bytes, Shrunk]]
"""Images before and after packing."""


def shrink(content: bytes, options: PackOptions) -> Shrunk:
    """Returns the image reduced to the short side of the options, or unchanged if that is no
    smaller in pixels and in bytes. Raises `BadImageError`."""
    short_side = options.short_side or 0
    with _decoding(), Image.open(io.BytesIO(content)) as image:
        if image.format not in ("JPEG", "MPO", "PNG"):
            return Shrunk(content, (OTHER_FORMAT,))
        is_turned = image.getexif().get(_ORIENTATION, 1) in range(2, 9)
        kept = (TURNED,) if is_turned else ()
        is_small = min(image.size) <= short_side
        if is_small or (image.format == "PNG" and image.mode != "RGB"):
            image.load()  # checks its bytes
            return Shrunk(content, (SMALL if is_small else OTHER_MODE, *kept))
        # Decodes a large JPEG at 1/2, 1/4 or 1/8 of its size, still at least twice the result.
        image.draft(image.mode, _reduced_size(image, 2 * short_side))
        pixels, changes = _to_rgb(ImageOps.exif_transpose(image))
    pixels = pixels.resize(_reduced_size(pixels, short_side), Image.Resampling.LANCZOS)
    pixels.info.clear()
    out = io.BytesIO()
    pixels.save(
        out,
        "JPEG",
        quality=options.quality,
        subsampling="4:2:0",
        optimize=True,
        restart_marker_rows=int(options.restart_markers),
    )
    if len(out.getvalue()) >= len(content):
        return Shrunk(content, (LARGER, *kept))
    return Shrunk(out.getvalue(), (REDUCED, *changes, *((UPRIGHT,) if is_turned else ())), pixels)


def decode(content: bytes) -> Image.Image:
    """Returns the pixels. Raises `BadImageError`."""
    with _decoding(), Image.open(io.BytesIO(content)) as image:
        image.load()
        copy: Image.Image = image.copy()
        return copy


def figures(images: Looked) -> list[str]:
    """Returns lines about the effect and cost of reducing images; empty without images."""
    if not images:
        return []
    contents = [content for content, _ in images], [shrunk.content for _, shrunk in images]
    size, small = (sum(map(len, packed)) / len(packed) / 1000 for packed in contents)
    slow, fast = map(_decode_ms, contents)
    lines = [
        f"mean size of {len(images)} images: {size:.1f} KB before, {small:.1f} KB after",
        f"time to decode one: {slow:.2f} ms before, {fast:.2f} ms after",
        f"forecast: {1000 / slow:,.0f} images/s per core before, {1000 / fast:,.0f} after",
    ]
    reduced = [shrunk for _, shrunk in images if shrunk.pixels is not None]
    if psnr := [_psnr(shrunk.pixels, decode(shrunk.content)) for shrunk in reduced]:
        mean = sum(psnr) / len(psnr)
        lines.append(f"PSNR of {len(psnr)} of them: mean {mean:.1f} dB, least {min(psnr):.1f}")
    return lines


def _reduced_size(image: Image.Image, short_side: int) -> tuple[int, int]:
    scale = short_side / min(image.size)
    return max(1, round(image.width * scale)), max(1, round(image.height * scale))


def _to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Returns the image in sRGB or grey, and the conversions made."""
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
    except (KeyError, OSError, ImageCms.PyCMSError):  # no profile, or one for other colours
        pass
    return image.convert("RGB"), changes


@contextmanager
def _decoding() -> Iterator[None]:
    """Turns Pillow's errors for invalid bytes into `BadImageError`."""
    try:
        yield
    except UnidentifiedImageError as error:  # its text contains an object's address
        raise BadImageError("Pillow does not recognize the format") from error
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError) as error:
        raise BadImageError(str(error) or type(error).__name__) from error


def _psnr(first: Image.Image | None, second: Image.Image) -> float:
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    error = float(np.mean(difference**2))
    return 10 * math.log10(255**2 / error) if error else 99.0


def _decode_ms(images: Sequence[bytes]) -> float:
    """Returns the mean time to decode an image as a server does, each the fastest of three."""
    seconds = 0.0
    for image in map(tf.constant, images):
        with suppress(tf.errors.InvalidArgumentError):  # CMYK, for example
            decode_as_served = partial(tf.io.decode_image, image, 3, expand_animations=False)
            seconds += min(timeit.repeat(decode_as_served, number=1, repeat=3))
    return max(1e-3, 1000 * seconds / len(images))
