"""Measures of some samples: their sizes, and what reducing their images costs and gives."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from PIL import Image

from infeed_server.pack.fields import Field, Values
from infeed_server.pack.images import BadImageError, decode, shrink
from infeed_server.pack.options import PackOptions

_REPEATS = 3
"""Decodes of an image; the fastest one counts."""


@dataclass
class Looks:
    """The samples that were looked at."""

    mean_bytes: float = 0.0
    """Of a sample, packed."""
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Images as they are and as they are packed."""
    psnr: list[float] = field(default_factory=list)
    """Of each reduced image: its pixels before they were encoded, and after, in dB."""

    @classmethod
    def of(cls, samples: Sequence[Values], fields: Sequence[Field], options: PackOptions) -> Looks:
        looks, total = cls(), 0
        for values in samples:
            for one in fields:
                value = values[one.name]
                if isinstance(value, bytes) and options.reduces(one.name) and one.image:
                    value = looks._reduce(value, options)
                total += len(value) if isinstance(value, bytes) else value.nbytes
        looks.mean_bytes = total / max(1, len(samples))
        return looks

    def lines(self) -> list[str]:
        """Returns the figures; empty without reduced images."""
        if not self.pairs:
            return []
        before, after = zip(*self.pairs, strict=True)
        sizes = [sum(map(len, images)) / len(images) / 1000 for images in (before, after)]
        times = [_decode_ms(images) for images in (before, after)]
        rates = [1000 / milliseconds for milliseconds in times]
        count = len(self.pairs)
        lines = [
            f"mean size of {count} images: {sizes[0]:.1f} KB before, {sizes[1]:.1f} KB after",
            f"time to decode one: {times[0]:.2f} ms before, {times[1]:.2f} ms after",
            f"forecast: {rates[0]:,.0f} images/s per core before, {rates[1]:,.0f} after",
        ]
        if self.psnr:
            mean, least = np.mean(self.psnr), min(self.psnr)
            lines.append(f"PSNR of {len(self.psnr)} of them: mean {mean:.1f} dB, least {least:.1f}")
        return lines

    def _reduce(self, content: bytes, options: PackOptions) -> bytes:
        try:
            shrunk = shrink(content, options)
        except BadImageError:
            return content
        self.pairs.append((content, shrunk.content))
        if shrunk.pixels is not None:
            self.psnr.append(_psnr(shrunk.pixels, decode(shrunk.content)))
        return shrunk.content


def _psnr(first: Image.Image, second: Image.Image) -> float:
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
