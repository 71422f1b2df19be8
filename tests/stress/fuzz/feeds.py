"""Feeds in this process of whatever a server describes and sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.stress.fuzz.replies import WrongError

import infeed
from infeed import wire
from infeed.errors import (
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
    StallError,
)
from infeed.spec import PipelineSpec
from infeed.v1 import spec_pb2, stream_pb2

_MOST_BYTES = 1 << 20
"""Of a batch that is really sent."""

_STEPS = 3
_HANG_SECONDS = 60.0

_FLOATS = [0.0, -0.0, 1.0, 255.0, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308]


class Told:
    """Describes a pipeline as it is told to, and sends batches of zeros or whatever it is told."""

    target = "fuzz"

    def __init__(self, message: spec_pb2.Pipeline, answer: Callable[[], Iterator[bytes]]) -> None:
        self._message = message
        self._answer = answer

    def get_pipeline(self, name: str, timeout: float = 0.0) -> PipelineSpec:
        return PipelineSpec.from_proto(self._message)

    def servers(self) -> tuple[str, ...]:
        return ("fuzz:1",)

    def open_stream(self, server: str, requests: Iterator[Any], draining: Any) -> Any:
        return _Call(requests, self._answer)

    def close(self) -> None:
        """Nothing is open."""


class _Call:
    server = "fuzz:1"

    def __init__(self, requests: Iterator[Any], answer: Callable[[Any], Iterator[bytes]]) -> None:
        self._messages = answer(requests)
        self._rest = memoryview(b"")

    def next(self) -> int | None:
        message = next(self._messages, None)
        self._rest = memoryview(message or b"")
        return None if message is None else len(message)

    def read_into(self, memory: memoryview) -> None:
        if len(memory) > len(self._rest):
            raise ProtocolError("a message that ends early")
        memory[:] = self._rest[: len(memory)]
        self._rest = self._rest[len(memory) :]

    def cancel(self) -> None:
        """Never waits."""

    close = cancel


def read(transport: Any, name: str, **options: Any) -> str:
    """How a feed of it ends, after a few steps at most."""
    try:
        with infeed.connect(
            "fuzz",
            name,
            transport=transport,
            reconnect_timeout=0.0,
            timeout=_HANG_SECONDS,
            **options,
        ) as feed:
            _look(feed)
            for _ in range(_STEPS):
                try:
                    batch = feed.next(timeout=2 * _HANG_SECONDS)
                except StopIteration:
                    return "ended"
                _fits(feed, batch)
            return "read"
    except StallError as error:
        if "silent" in error.message or "no batch" in error.message:
            raise WrongError(f"the feed hangs: {error}") from error
        return "StallError"
    except InfeedError as error:
        return type(error).__name__


def _look(feed: infeed.Feed) -> None:
    """All that a trainer may ask of a feed before its first batch."""
    feed.state()
    str(feed.stats())
    repr(feed)
    for told in (feed.steps, feed.steps_left, feed.steps_per_epoch):
        if told is not None and told < 0:
            raise WrongError(f"{told} steps")
    if feed.may_mask not in (True, False) or feed.batch_size < 1:
        raise WrongError(f"batches of {feed.batch_size}")


def _fits(feed: infeed.Feed, batch: infeed.Batch) -> None:
    if sorted(batch) != sorted(field.name for field in feed.element_spec):
        raise WrongError(f"fields {sorted(batch)}")
    for field in feed.element_spec:
        array = batch[field.name]
        if array.shape != (feed.batch_size, *field.shape):
            raise WrongError(f"{field} has the shape {array.shape}")
        if array.dtype != infeed.spec.numpy_dtype(field.data_type):
            raise WrongError(f"{field} is of {array.dtype}")


def zeros(spec: PipelineSpec, job_open: Any, requests: Iterator[Any]) -> Iterator[bytes]:
    """A stream of empty batches, as the description has them."""
    on_server = job_open.finish == stream_pb2.FINISH_PLACEMENT_SERVER
    fields = spec.element_spec if on_server else spec.wire_spec
    opened = stream_pb2.StreamOpened(
        fingerprint=spec.fingerprint,
        spec=[field.to_proto() for field in fields],
        batch_size=job_open.batch_size,
        seed=job_open.seed,
        batch_stride=spec.stride(job_open.batch_size),
    )
    yield stream_pb2.StreamBatchesResponse(opened=opened).SerializeToString()
    slots = job_open.batch_size
    size = sum((field.sample_bytes or 8 * field.elements) * slots for field in fields)
    if size > _MOST_BYTES or slots > 1000:
        raise ServerUnavailableError("too large to be worth it")
    arrays = {field.name: field.zeros(slots) for field in fields}
    for request in requests:
        ids, mask = np.arange(slots), np.ones(slots, bool)
        asked = request.batch
        made = wire.encode_batch(asked.request_id, asked.start, 0, fields, arrays, ids, mask)
        yield from map(b"".join, made.frames())
