"""Measures of some samples: their sizes, and what reducing their images costs and gives."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image

from infeed_server.pack.fields import Field, Values
from infeed_server.pack.images import BadImageError, Shrunk, decode, shrink
from infeed_server.pack.options import PackOptions

_REPEATS = 3
"""Decodes of an image; the fastest one counts."""


class Looks(NamedTuple):
    """The samples that were looked at."""

    mean_bytes: float
    """Of a sample, packed."""
    images: list[tuple[bytes, Shrunk]]
    """Images as they are, and as they are packed."""

    @classmethod
    def of(cls, samples: Sequence[Values], fields: Sequence[Field], options: PackOptions) -> Looks:
        images, total = [], 0
        for values in samples:
            for field in fields:
                value = values[field.name]
                if isinstance(value, bytes) and field.image and options.reduces(field.name):
                    with contextlib.suppress(BadImageError):
                        images.append((value, shrink(value, options)))
                        value = images[-1][1].content
                total += len(value) if isinstance(value, bytes) else value.nbytes
        return cls(total / max(1, len(samples)), images)

    def lines(self) -> list[str]:
        """Returns the figures; empty without reduced images."""
        if not self.images:
            return []
        before = [content for content, _ in self.images]
        after = [shrunk.content for _, shrunk in self.images]
        sizes = [sum(map(len, images)) / len(images) / 1000 for images in (before, after)]
        times = [_decode_ms(images) for images in (before, after)]
        rates = [1000 / milliseconds for milliseconds in times]
        lines = [
            f"mean size of {len(before)} images: {sizes[0]:.1f} KB before, {sizes[1]:.1f} KB after",
            f"time to decode one: {times[0]:.2f} ms before, {times[1]:.2f} ms after",
            f"forecast: {rates[0]:,.0f} images/s per core before, {rates[1]:,.0f} after",
        ]
        reduced = [shrunk for _, shrunk in self.images if shrunk.pixels is not None]
        if psnr := [_psnr(shrunk.pixels, decode(shrunk.content)) for shrunk in reduced]:
            mean = sum(psnr) / len(psnr)
            lines.append(f"PSNR of {len(psnr)} of them: mean {mean:.1f} dB, least {min(psnr):.1f}")
        return lines


def _psnr(first: Image.Image | None, second: Image.Image) -> float:
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    error = float(np.mean(difference**2))
    return 10 * math.log10(255**2 / error) if error else 99.0


def _decode_ms(images: Sequence[bytes]) -> float:
    """Returns the mean time to decode an image as a server does."""
    total = 0.0
    for image in images:
        content, seconds = tf.constant(image), math.inf
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            with contextlib.suppress(tf.errors.InvalidArgumentError):  # CMYK, for example
                tf.io.decode_image(content, 3, expand_animations=False)
            seconds = min(seconds, time.perf_counter() - begin)
        total += seconds
    return max(1e-3, 1000 * total / len(images))
