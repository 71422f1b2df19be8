"""Feeds over a scripted transport in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.stress.fuzz.replies import WrongResultError

import infeed
from infeed.shared.errors import (
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
    StallError,
)
from infeed.shared.spec import PipelineSpec
from infeed.v1 import spec_pb2, stream_pb2
from infeed.wire import batch as wire

_MAX_BATCH_BYTES = 1 << 20
"""Maximum size of a batch; larger ones are refused."""

_MAX_STEPS = 3
_HANG_TIMEOUT_SECONDS = 60.0


class ScriptedTransport:
    """Transport with a given pipeline description and given response messages."""

    target = "fuzz"

    def __init__(self, message: spec_pb2.Pipeline, respond: Callable[[], Iterator[bytes]]) -> None:
        self._message = message
        self._respond = respond

    def get_pipeline(self, name: str, timeout: float = 0.0) -> PipelineSpec:
        return PipelineSpec.from_proto(self._message)

    def servers(self) -> tuple[str, ...]:
        return ("fuzz:1",)

    def open_stream(self, server: str, requests: Iterator[Any], draining: Any) -> Any:
        return _Call(requests, self._respond)

    def close(self) -> None:
        """Does nothing: no connection is open."""


class _Call:
    server = "fuzz:1"

    def __init__(self, requests: Iterator[Any], respond: Callable[[Any], Iterator[bytes]]) -> None:
        self._messages = respond(requests)
        self._rest = memoryview(b"")

    def next(self) -> int | None:
        message = next(self._messages, None)
        self._rest = memoryview(message or b"")
        return None if message is None else len(message)

    def read_into(self, memory: memoryview) -> None:
        if len(memory) > len(self._rest):
            raise ProtocolError("truncated message")
        memory[:] = self._rest[: len(memory)]
        self._rest = self._rest[len(memory) :]

    def cancel(self) -> None:
        """Does nothing: the call never waits."""

    close = cancel


def read_feed(transport: Any, name: str, **options: Any) -> str:
    """Reads a few steps of a feed and returns its outcome."""
    try:
        with infeed.connect(
            "fuzz",
            name,
            transport=transport,
            reconnect_timeout=0.0,
            timeout=_HANG_TIMEOUT_SECONDS,
            **options,
        ) as feed:
            _check_properties(feed)
            for _ in range(_MAX_STEPS):
                try:
                    batch = feed.next(timeout=2 * _HANG_TIMEOUT_SECONDS)
                except StopIteration:
                    return "ended"
                _check_batch(feed, batch)
            return "read"
    except StallError as error:
        if "no batch" in error.message:
            raise WrongResultError(f"the feed hangs: {error}") from error
        return "StallError"
    except InfeedError as error:
        return type(error).__name__


def _check_properties(feed: infeed.Feed) -> None:
    """Checks all properties that a feed has before its first batch."""
    feed.state()
    str(feed.stats())
    repr(feed)
    for steps in (feed.steps, feed.steps_left, feed.steps_per_epoch):
        if steps is not None and steps < 0:
            raise WrongResultError(f"{steps} steps")
    if feed.may_mask not in (True, False) or feed.batch_size < 1:
        raise WrongResultError(f"batches of {feed.batch_size}")


def _check_batch(feed: infeed.Feed, batch: infeed.Batch) -> None:
    if sorted(batch) != sorted(field.name for field in feed.element_spec):
        raise WrongResultError(f"fields {sorted(batch)}")
    for field in feed.element_spec:
        array = batch[field.name]
        if array.shape != (feed.batch_size, *field.shape):
            raise WrongResultError(f"{field} has the shape {array.shape}")
        if array.dtype != infeed.shared.spec.numpy_dtype(field.data_type):
            raise WrongResultError(f"{field} is of {array.dtype}")


def zero_batches(spec: PipelineSpec, job_open: Any, requests: Iterator[Any]) -> Iterator[bytes]:
    """Yields the messages of a stream of zero batches, as the pipeline describes them."""
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
    if size > _MAX_BATCH_BYTES or slots > 1000:
        raise ServerUnavailableError("batch too large for this fuzzer")
    arrays = {field.name: field.zeros(slots) for field in fields}
    for request in requests:
        ids, mask = np.arange(slots), np.ones(slots, bool)
        batch = request.batch
        encoded = wire.encode_batch(batch, batch.start, 0, fields, arrays, ids, mask)
        yield from map(b"".join, encoded.messages())
