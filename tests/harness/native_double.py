"""Double of `infeed_jpeg`: the same calls, by TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.transforms.images.jpeg import END_OF_IMAGE

STATUS = ("decoded", "damaged", "odd")


class DecoderDouble:
    """Decodes as `infeed_jpeg` does; refuses what is no whole JPEG, and what `is_odd` of."""

    STATUS = STATUS

    def __init__(
        self, is_odd: Callable[[bytes], Any] = lambda _: False, unavailable: str | None = None
    ) -> None:
        self.is_odd = is_odd
        self.unavailable = lambda: unavailable
        self.calls = 0

    def read_headers(self, records: list[bytes]) -> Any:
        return np.array([self._shape(record)[:2] for record in records], np.int32).reshape(-1, 2)

    def decode_batch(
        self, records: list[bytes], windows: Any, flips: Any, out: Any, threads: int
    ) -> Any:
        assert threads == 1
        assert out.flags.c_contiguous
        self.calls += 1
        status = np.zeros(len(records), np.uint8)
        for row, record in enumerate(records):
            if not any(self._shape(record)) or not record.endswith(END_OF_IMAGE):
                status[row] = 2 if self.is_odd(record) else 1
                continue
            pixels = tf.io.decode_jpeg(record, channels=3)
            top, left, height, width = windows[row].tolist()
            window = pixels[top : top + height, left : left + width]
            resized = tf.cast(tf.round(tf.image.resize(window, out.shape[1:3])), tf.uint8)
            out[row] = resized[:, ::-1] if flips[row] else resized
        return status

    def _shape(self, record: bytes) -> tuple[int, ...]:
        if self.is_odd(record):
            return (0, 0)
        try:
            return tuple(tf.io.extract_jpeg_shape(record).numpy().tolist())
        except tf.errors.InvalidArgumentError:
            return (0, 0)
