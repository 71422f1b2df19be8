"""Fake transport: feeds without a server, for tests of training code.

fake = infeed.testing.FakeTransport({"image": images, "label": labels}, batch_size=32)
feed = infeed.connect("fake", "fake", epochs=2, transport=fake)
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf.message import Message

from infeed.shared.errors import (
    FeedClosedError,
    FingerprintError,
    InvalidRequestError,
    PipelineNotFoundError,
)
from infeed.shared.finish import finish, finished_spec
from infeed.shared.spec import (
    BYTES,
    Array,
    FieldSpec,
    FinishTransform,
    Guarantee,
    OnError,
    PipelineSpec,
    Remainder,
)
from infeed.transport import Call
from infeed.v1 import stream_pb2
from infeed.wire import batch as wire


@dataclass(eq=False, repr=False)
class FakeTransport:
    """Serves arrays, one row per sample, as a pipeline with a reproducible order.

    arrays             arrays by field; one row per sample
    name               the pipeline's name
    batch_size         slots of each batch
    seed               seed of the order
    shuffle            whether each epoch is shuffled
    finish_transforms  `infeed.shared.spec.Cast`, `Normalize`, `OneHot`
    remainder          `"drop"` or `"pad"`
    on_error           value reported in the spec; no fake sample ever fails
    length_known       whether the length is known; False imitates a dataset of unknown length
    before_batch       called with each batch's position, on the feed's thread; sleep in it to
                       imitate a slow server, raise `ServerUnavailableError` to imitate a lost one
    """

    arrays: Mapping[str, Array]
    _: KW_ONLY
    name: str = "fake"
    batch_size: int = 8
    seed: int = 0
    shuffle: bool = True
    finish_transforms: Sequence[FinishTransform] = ()
    remainder: Remainder = "drop"
    on_error: OnError = "raise"
    length_known: bool = True
    before_batch: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self.target = "fake"
        self.streams = 0
        """Streams opened so far."""
        self._arrays = {key: np.asarray(value) for key, value in self.arrays.items()}
        self._count = len(next(iter(self._arrays.values())))
        types: dict[str, Any] = {
            key: BYTES if value.dtype == object else value.dtype.name
            for key, value in self._arrays.items()
        }
        wire_spec = tuple(
            FieldSpec(key, types[key], value.shape[1:]) for key, value in self._arrays.items()
        )
        self.spec = PipelineSpec(
            name=self.name,
            element_spec=finished_spec(wire_spec, self.finish_transforms),
            wire_spec=wire_spec,
            finish_transforms=tuple(self.finish_transforms),
            sample_count=self._count if self.length_known else None,
            fingerprint=self._fingerprint(),
            guarantee=Guarantee(),
            batch_size=self.batch_size,
            seed=self.seed,
            remainder=self.remainder,
            on_error=self.on_error,
            server_version="fake",
        )

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:  # noqa: ARG002
        if name != self.spec.name:
            raise PipelineNotFoundError(f"no pipeline {name!r}; known: {self.spec.name}")
        return self.spec

    def list_pipelines(self, timeout: float = 20.0) -> list[PipelineSpec]:  # noqa: ARG002
        return [self.spec]

    def call(self, method: str, request: Message, timeout: float = 20.0) -> Any:  # noqa: ARG002
        raise InvalidRequestError(f"FakeTransport does not answer {method}")

    def servers(self) -> tuple[str, ...]:
        return ("fake",)

    def open_stream(
        self, _: str, requests: Iterator[stream_pb2.StreamBatchesRequest], *__: object
    ) -> Call:
        self.streams += 1
        return _FakeCall(self.answer(requests))

    def close(self) -> None: ...

    def sample_ids(self, seed: int, start: int, count: int) -> Array:
        """Returns the samples at positions [start, start + count), int64."""
        positions = np.arange(start, start + count)
        if not self.shuffle:
            return positions % self._count
        epochs = (epoch_order(seed, int(p) // self._count, self._count) for p in positions)
        rows = [order[p % self._count] for order, p in zip(epochs, positions, strict=True)]
        return np.array(rows, np.int64)

    def answer(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Iterator[bytes]:
        """Yields the messages of one stream, encoded as a server would."""
        opening = next(requests).open
        if opening.fingerprint not in ("", self.spec.fingerprint):
            raise FingerprintError(
                f"fingerprint {self.spec.fingerprint}, not {opening.fingerprint}"
            )
        _refuse_segments(opening)
        self.get_pipeline(opening.pipeline)
        if not opening.HasField("seed"):
            opening.seed = self.spec.seed
        opening.batch_size = opening.batch_size or self.spec.batch_size
        yield self._opened(opening).SerializeToString()
        for request in requests:
            yield from self._batch(opening, request.batch)

    def _opened(self, opening: stream_pb2.StreamOpen) -> stream_pb2.StreamBatchesResponse:
        on_server = opening.finish == stream_pb2.FINISH_PLACEMENT_SERVER
        spec = self.spec.element_spec if on_server else self.spec.wire_spec
        opened = stream_pb2.StreamOpened(
            fingerprint=self.spec.fingerprint,
            spec=[field.to_proto() for field in spec],
            batch_size=opening.batch_size,
            seed=opening.seed,
            batch_stride=self.spec.stride(opening.batch_size),
            has_checksums=True,
            request=opening,
            segments=len(opening.lineage.segments),
        )
        opened.request.ClearField("feed_id")
        return stream_pb2.StreamBatchesResponse(opened=opened)

    def _batch(
        self, opening: stream_pb2.StreamOpen, request: stream_pb2.BatchRequest
    ) -> Iterator[bytes]:
        if self.before_batch is not None:
            self.before_batch(request.start)
        count, position_count = request.count, None
        if self.spec.sample_count is None and opening.epochs:
            total = self._count * opening.epochs
            if total < (request.min_position_count or request.start + 1):
                end = wire.encode_end(request, total)
                yield stream_pb2.StreamBatchesResponse(end=end).SerializeToString()
                return
            count = min(count, max(0, total - request.start))
            position_count = total if total < request.step_end else None
        ids = np.full(opening.batch_size, -1, np.int64)
        ids[:count] = self.sample_ids(opening.seed, request.start, count)
        mask = ids >= 0
        arrays, spec = self._rows(ids, mask), self.spec.wire_spec
        if opening.finish == stream_pb2.FINISH_PLACEMENT_SERVER:
            arrays = finish(arrays, self.spec.finish_transforms, mask)
            spec = self.spec.element_spec
        epoch = request.start // self._count
        batch = wire.encode_batch(
            request, request.start, epoch, wire.Payload(spec, arrays), ids, mask, position_count
        )
        yield from map(b"".join, batch.messages())

    def _rows(self, ids: Array, mask: Array) -> dict[str, Array]:
        rows = {}
        for field in self.spec.wire_spec:
            rows[field.name] = field.zeros(len(ids))
            rows[field.name][mask] = self._arrays[field.name][ids[mask]]
        return rows

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.shuffle, tuple(self.finish_transforms))).encode())
        for key, value in self._arrays.items():
            data = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
            digest.update(f"{key} {value.dtype} {value.shape}".encode() + data)
        return f"00{digest.hexdigest()[:30]}"  # "00": no server's algorithm


def _refuse_segments(opening: stream_pb2.StreamOpen) -> None:
    if opening.lineage.segments:
        raise InvalidRequestError("FakeTransport cannot serve a run with segments; use a server")


@lru_cache(maxsize=16)
def epoch_order(seed: int, epoch: int, count: int) -> Array:
    """Returns the permutation of one epoch."""
    return np.random.default_rng((seed, epoch)).permutation(count)


class _FakeCall:
    server = "fake"

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._unread = memoryview(b"")
        self._cancelled = threading.Event()

    def next(self) -> int | None:
        message = next(self._messages, None)
        if self._cancelled.is_set():
            raise FeedClosedError("the stream was cancelled")
        if message is None:
            return None
        self._unread = memoryview(message)
        return len(message)

    def read_into(self, memory: memoryview) -> None:
        memory[:] = self._unread[: len(memory)]
        self._unread = self._unread[len(memory) :]

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self.cancel()
