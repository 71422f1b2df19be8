"""Native decoder of tests: the installed one, and a double with the same calls, by TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.transforms.images.jpeg import END_OF_IMAGE
from infeed_server.transforms.images.orientation import orient


def require_decoder() -> Any:
    """Returns the installed decoder; skips the test, or the module, where there is none."""
    decoder = pytest.importorskip("infeed_jpeg", reason="native/ is not built")
    if reason := decoder.unavailable():
        pytest.skip(f"infeed_jpeg: {reason}", allow_module_level=True)
    return decoder


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
        self,
        records: list[bytes],
        windows: Any,
        flips: Any,
        out: Any,
        threads: int,
        *,
        run: Any = map,
        parts: Any = None,
        orientations: Any = None,
        antialias: bool = False,
    ) -> Any:
        assert out.flags.c_contiguous
        self.calls += 1
        status = np.zeros(len(records), np.uint8)
        for row, record in enumerate(records):
            if not any(self._shape(record)) or not record.endswith(END_OF_IMAGE):
                status[row] = 2 if self.is_odd(record) else 1
                continue
            try:
                pixels = tf.io.decode_jpeg(record, channels=3)
            except tf.errors.InvalidArgumentError:
                status[row] = 1
                continue
            if orientations is not None:
                pixels = orient(pixels, tf.constant(int(orientations[row])))
            window, is_inside = _cut(pixels, *windows[row].tolist())
            height, width, *place = (
                (*out.shape[1:3], 0, 0) if parts is None else parts[row].tolist()
            )
            resized = tf.image.resize(window, (height, width), antialias=antialias)
            part, is_part_inside = _cut(resized, *place, *out.shape[1:3])
            status[row] = not (is_inside and is_part_inside)
            if not status[row]:
                part = tf.cast(tf.round(part), tf.uint8)
                out[row] = part[:, ::-1] if flips[row] else part
        return status

    def _shape(self, record: bytes) -> tuple[int, ...]:
        if self.is_odd(record):
            return (0, 0)
        try:
            return tuple(tf.io.extract_jpeg_shape(record).numpy().tolist())
        except tf.errors.InvalidArgumentError:
            return (0, 0)


def _cut(pixels: tf.Tensor, top: int, left: int, height: int, width: int) -> tuple[tf.Tensor, bool]:
    """Returns a window, and whether it is inside."""
    is_inside = top >= 0 and left >= 0
    window = pixels[max(top, 0) : top + height, max(left, 0) : left + width]
    return window, is_inside and window.shape[:2] == (height, width)
