"""Reference of the decoder's pixels: TensorFlow's, of one picture at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from PIL import Image
from tests.harness.native_double import require_decoder

from infeed_server.transforms.images.orientation import orient

infeed_jpeg = require_decoder()

Pixels = npt.NDArray[np.uint8]


class Case(NamedTuple):
    """A picture, and what is made of it."""

    record: bytes
    window: tuple[int, int, int, int]
    flip: int
    size: tuple[int, int]
    resized: tuple[int, int, int, int] | None = None
    """The size of the resized window, and where the part of `size` begins."""
    antialias: bool = False
    orientation: int = 1


def expected(case: Case) -> Pixels | None:
    """Returns TensorFlow's pixels, or None if it refuses the picture."""
    try:
        picture = tf.io.decode_jpeg(case.record, channels=3)
    except tf.errors.InvalidArgumentError:
        return None
    picture = orient(picture, case.orientation)
    top, left, height, width = case.window
    window = picture[top : top + height, left : left + width]
    height, width, top, left = case.resized or (*case.size, 0, 0)
    resized = tf.image.resize(window, (height, width), antialias=case.antialias)
    part = resized[top : top + case.size[0], left : left + case.size[1]]
    pixels = tf.cast(tf.round(part), tf.uint8).numpy()
    return pixels[:, ::-1] if case.flip else pixels


def decoded(case: Case) -> tuple[Pixels, str]:
    out = np.full((1, *case.size, 3), 77, np.uint8)
    window, flip = np.array([case.window], np.int32), np.array([case.flip], np.uint8)
    parts = None if case.resized is None else np.array([case.resized], np.int32)
    (status,) = infeed_jpeg.decode_batch(
        [case.record],
        window,
        flip,
        out,
        1,
        parts=parts,
        orientations=np.array([case.orientation], np.uint8),
        antialias=case.antialias,
    )
    return out[0], infeed_jpeg.STATUS[status]


def encode(pixels: Pixels, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def some_pixels(height: int, width: int, seed: int, *, is_grey: bool = False) -> Pixels:
    """Returns waves with noise: every coefficient and both ends of the range occur."""
    rng = np.random.default_rng(seed)
    shape = (height, width) if is_grey else (height, width, 3)
    waves = np.sin(np.arange(width) / 3)[:, None] + np.cos(np.arange(height) / 5)[:, None, None]
    waves = waves[..., 0] if is_grey else waves
    noise = rng.normal(128, 60, shape) + 60 * waves
    return np.clip(noise, 0, 255).astype(np.uint8)


def cases(record: bytes, height: int, width: int, seed: int, count: int = 2) -> Iterator[Case]:
    """Yields the whole picture as it is, and windows, resized; every second one is flipped, and
    parts of larger results."""
    rng = np.random.default_rng(seed)
    yield Case(record, (0, 0, height, width), 0, (height, width))
    for number in range(count):
        h, w = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
        top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
        size = (h, w) if number == 1 else (int(rng.integers(1, 70)), int(rng.integers(1, 70)))
        yield Case(record, (top, left, h, w), number % 2, size)
        resized = tuple(int(side + rng.integers(60)) for side in size)
        corner = (int(rng.integers(resized[0] - size[0] + 1)), resized[1] - size[1])
        for antialias in (False, True):
            part = (*resized, *corner)
            yield Case(record, (top, left, h, w), number % 2, size, part, antialias=antialias)
