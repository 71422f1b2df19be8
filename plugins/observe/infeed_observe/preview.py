"""Previews: a few samples of a pipeline as pictures, with their origin."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
from PIL import Image

from infeed.shared import pictures
from infeed.shared.errors import InfeedError, InvalidRequestError, PipelineNotFoundError
from infeed.shared.spec import Array
from infeed_server.engines.base import Engine, HostBatch, Request, Trainer
from infeed_server.engines.capabilities import random_access

MAX_SAMPLES = 8

INTERVAL_SECONDS = 2.0
"""Seconds between two previews of a server: trainers must not notice them."""

_BATCH_TIMEOUT_SECONDS = 20.0

_MAX_POSITION = 1 << 62


class BusyError(Exception):
    """A preview is being made, or was made a moment ago."""


class Previews:
    """Makes previews, one at a time, and refuses others meanwhile. Thread-safe."""

    def __init__(
        self, engines: Mapping[str, Engine], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engines = engines
        self._clock = clock
        self._next_at = clock()
        self._lock = threading.Lock()

    def make(self, pipeline: str, position: int) -> dict[str, Any]:
        """Returns the samples from a position of the default order on, for JSON. Raises
        `BusyError`, `PipelineNotFoundError`, `InvalidRequestError` for a wrong position or a
        pipeline without previews, and the errors of a stream."""
        engine = self._engines.get(pipeline)
        if engine is None:
            names = ", ".join(map(repr, self._engines)) or "none"
            raise PipelineNotFoundError(f"there is no pipeline {pipeline!r}; available: {names}")
        if not 0 <= position <= _MAX_POSITION:
            raise InvalidRequestError(f"position={position} must be from 0 to 2^62")
        random_access(engine)  # a sequential one would be read up to the position
        if self._clock() < self._next_at or not self._lock.acquire(blocking=False):
            raise BusyError
        try:
            slots = min(MAX_SAMPLES, engine.spec.batch_size)
            return _to_json(engine, _batch(engine, position, slots))
        finally:
            self._next_at = self._clock() + INTERVAL_SECONDS
            self._lock.release()


def _batch(engine: Engine, position: int, slots: int) -> HostBatch:
    """Returns a small batch, which waits its turn like a trainer's."""
    session = engine.open(slots, 0, Trainer())
    try:
        future = session.submit(Request(engine.spec.seed, position, slots, slots))
        answer = future.result(_BATCH_TIMEOUT_SECONDS)
        session.on_sent()
    except FutureTimeoutError:
        raise InfeedError(
            f"no batch within {_BATCH_TIMEOUT_SECONDS:.0f} s: the trainers keep the server busy"
        ) from None
    finally:
        session.close()
    if not isinstance(answer, HostBatch):
        raise InvalidRequestError(f"the data ends before position {position}")
    return answer


def _to_json(engine: Engine, batch: HostBatch) -> dict[str, Any]:
    source = random_access(engine)
    numbers = {name: array for name, array in batch.arrays.items() if array.dtype.kind in "uifb"}
    field = pictures.picture_field({name: array.shape[1:] for name, array in numbers.items()})
    samples: list[dict[str, Any]] = []
    for slot, number in enumerate(map(int, batch.sample_ids)):
        sample_id = number if batch.mask[slot] else None
        file, offset = (None, None) if sample_id is None else source.provenance(sample_id)
        sent = {name: array[slot] for name, array in batch.arrays.items()}
        samples.append(
            {
                "position": batch.start + slot,
                "sample_id": sample_id,
                "file": file,
                "offset": offset,
                "image": data_url(sent[field]) if field else None,
                "values": {name: text_of(value) for name, value in sent.items() if name != field},
            }
        )
    return {
        "pipeline": engine.spec.name,
        "seed": engine.spec.seed,
        "epoch": batch.epoch,
        "image_field": field,
        "samples": samples,
    }


_MAX_SIDE = 256
"""Pixels; larger pictures are reduced."""
_MAX_VALUE_LENGTH = 60
_MAX_VALUES = 8


def data_url(pixels: Array) -> str:
    """Returns a picture as the data URL of a small PNG."""
    stride = max(1, max(pixels.shape[:2]) // (2 * _MAX_SIDE))
    image = Image.fromarray(np.ascontiguousarray(pictures.to_uint8(pixels[::stride, ::stride])))
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def text_of(value: Any) -> str:
    """Returns a value in a few characters: text or numbers, the size of encoded data, or the type,
    shape and range of many numbers."""
    array = np.asarray(value)
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        if not text.isprintable() or "\ufffd" in text:
            return f"{len(value):,} bytes"
    elif array.size <= _MAX_VALUES:
        text = str(array.tolist())
    else:
        text = f"{array.dtype}{list(array.shape)}"
        if array.dtype.kind in "uif":
            text += f", {array.min():.6g} to {array.max():.6g}"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."
