"""Previews: a few samples of a pipeline as pictures, with where they come from."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from infeed.errors import InfeedError, InvalidRequestError, PipelineNotFoundError
from infeed.spec import Array
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer

MAX_SAMPLES = 8

INTERVAL_SECONDS = 2.0
"""Between two previews of a server: trainers must not notice them."""

_TIMEOUT_SECONDS = 20.0
_MAX_SIDE = 256
"""Pixels; larger pictures are made smaller."""
_MIN_GREY_SIDE = 8
"""Pixels; a smaller matrix is hardly an image."""
_MAX_VALUE_LENGTH = 60
_MAX_POSITION = 1 << 62


class BusyError(Exception):
    """There was a preview a moment ago, or there is one now."""


class Previews:
    """Makes previews, one at a time. Used on one event loop."""

    def __init__(
        self, engines: Mapping[str, Engine], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engines = engines
        self._clock = clock
        self._next_at = clock()
        self._busy = False

    async def make(self, pipeline: str, position: int) -> dict[str, Any]:
        """Returns the samples from a position of the default order, for JSON.

        Raises `BusyError`, `PipelineNotFoundError`, `InvalidRequestError` for a position or a
        pipeline that has no previews, and the errors of a stream.
        """
        engine = self._engines.get(pipeline)
        if engine is None:
            names = ", ".join(map(repr, self._engines)) or "none"
            raise PipelineNotFoundError(f"there is no pipeline {pipeline!r}; there is: {names}")
        if not 0 <= position <= _MAX_POSITION:
            raise InvalidRequestError(f"position={position} must be from 0 to 2^62")
        if engine.spec.guarantee.resume != "constant_time":
            raise InvalidRequestError(
                f"{pipeline!r} is read from its beginning, so a preview would cost too much"
            )
        if self._busy or self._clock() < self._next_at:
            raise BusyError
        self._busy = True
        try:
            batch = await _batch(engine, position)
            return await _to_json(pipeline, engine, batch)
        finally:
            self._busy = False
            self._next_at = self._clock() + INTERVAL_SECONDS


async def _batch(engine: Engine, position: int) -> HostBatch:
    """Returns a small batch, which waits for its turn as those of trainers do."""
    slots = min(MAX_SAMPLES, engine.spec.batch_size)
    session = engine.open(slots, 0, Trainer())
    try:
        future = asyncio.wrap_future(
            session.submit(Request(engine.spec.seed, position, slots, slots))
        )
        answer = await asyncio.wait_for(future, _TIMEOUT_SECONDS)
        session.on_sent()
    except asyncio.TimeoutError:  # not yet the built-in one in Python 3.10
        raise InfeedError(
            f"no batch within {_TIMEOUT_SECONDS:.0f} s: the trainers keep the server busy"
        ) from None
    finally:
        session.close()
    if not isinstance(answer, HostBatch):
        raise InvalidRequestError(f"the data ends before position {position}")
    return answer


async def _to_json(pipeline: str, engine: Engine, batch: HostBatch) -> dict[str, Any]:
    field = _image_field(batch.arrays)
    samples = []
    for slot, sample_id in enumerate(map(int, batch.sample_ids)):
        file, offset = engine.provenance(sample_id) if batch.mask[slot] else (None, None)
        samples.append(
            {
                "position": batch.start + slot,
                "sample_id": sample_id if batch.mask[slot] else None,
                "file": file,
                "offset": offset,
                "image": await _image(batch.arrays, field, slot),
                "values": {
                    name: _text(array[slot])
                    for name, array in batch.arrays.items()
                    if name != field
                },
            }
        )
    return {
        "pipeline": pipeline,
        "seed": engine.spec.seed,
        "epoch": batch.epoch,
        "image_field": field,
        "samples": samples,
    }


def _image_field(arrays: Mapping[str, Array]) -> str | None:
    """Returns the first field whose samples are pictures."""
    for name, array in arrays.items():
        numeric = array.dtype.kind in "uifb"
        if numeric and array.ndim == 4 and array.shape[-1] in (1, 3, 4):
            return name
    for name, array in arrays.items():
        is_matrix = array.ndim == 3 and min(array.shape[1:]) >= _MIN_GREY_SIDE
        if is_matrix and array.dtype.kind in "uifb":
            return name
    return None


async def _image(arrays: Mapping[str, Array], field: str | None, slot: int) -> str | None:
    """Returns a sample's picture. A thread draws it, since other requests must not wait for it."""
    return None if field is None else await asyncio.to_thread(_data_url, arrays[field][slot])


def _data_url(pixels: Array) -> str:
    """Returns a sample as a PNG; numbers other than uint8 are scaled to 0-255."""
    if pixels.dtype != np.uint8:
        numbers = np.nan_to_num(pixels.astype(np.float64))
        low, high = float(numbers.min()), float(numbers.max())
        pixels = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _text(value: Any) -> str:
    """Returns a value of a sample in a few characters."""
    if isinstance(value, bytes):
        text = value[: 2 * _MAX_VALUE_LENGTH].decode(errors="replace")
    else:
        array = np.asarray(value)
        is_short = array.size <= MAX_SAMPLES
        text = str(array.tolist()) if is_short else f"{array.dtype}{list(array.shape)}"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."
