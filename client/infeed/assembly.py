"""From messages to batches: what one stream sends is checked and put together.

Everything is checked against what was asked for, before any memory is set aside for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from infeed import wire
from infeed.batch import Batch
from infeed.buffers import Buffers
from infeed.checksum import checksum
from infeed.chunk import HEAD_BYTES, ChunkHead, read_head
from infeed.errors import FingerprintError, ProtocolError
from infeed.spec import Spec
from infeed.v1 import stream_pb2

ReadInto = Callable[[memoryview], None]
"""Reads the next bytes of the message into the memory, as many as fit."""

_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Expected:
    """What every stream of a feed must carry."""

    fingerprint: str
    spec: Spec
    batch_size: int
    stride: int
    seed: int

    @property
    def payload_bytes(self) -> int | None:
        """Bytes of one batch; None when the spec has byte strings, whose length varies."""
        total = 0
        for field in self.spec:
            if field.sample_bytes is None:
                return None
            total = -(-total // wire.ALIGNMENT) * wire.ALIGNMENT
            total += self.batch_size * field.sample_bytes
        return total


@dataclass(frozen=True)
class Asked:
    """One request: batch `request_id` of the feed, at `start`."""

    request_id: int
    start: int


@dataclass(frozen=True)
class EndOfData:
    """The data set, whose length nobody knew, holds that many positions; the step is beyond."""

    step: int
    position_count: int


@dataclass(frozen=True)
class Received:
    """A step's whole batch in the wire spec, and the bytes that it took to send."""

    step: int
    batch: Batch
    payload_bytes: int
    position_count: int | None = None
    """Positions of the data, whose length nobody knew, where it ends inside the step."""


class Assembler:
    """Takes the messages of one stream in order. Raises `ProtocolError` for a wrong one."""

    def __init__(self, expected: Expected, asked: Iterator[Asked], buffers: Buffers) -> None:
        self._expected = expected
        self._asked = asked
        self._buffers = buffers
        self._header: stream_pb2.BatchHeader | None = None
        self._payload = _NOTHING
        self._filled = 0
        self.opened = False

    def take(self, size: int, read_into: ReadInto) -> Received | EndOfData | None:
        """Reads a message of that many bytes, and gives what it completes, if anything."""
        begin = _read(min(size, HEAD_BYTES), read_into)
        if head := read_head(begin, size):
            return self._chunk(head, begin, read_into)
        answer = wire.parse(bytes(begin + _read(size - len(begin), read_into)))
        kind = answer.WhichOneof("event")
        if kind == "chunk":  # from a server that encodes it in its own way
            chunk = answer.chunk
            head = ChunkHead(chunk.checksum, 0, len(chunk.data))
            return self._chunk(head, bytearray(chunk.data), read_into)
        if kind == "heartbeat":
            return None
        if self._header is not None:
            raise ProtocolError(
                f"the batch at position {self._header.start} broke off after {self._filled} of "
                f"{self._header.payload_size} bytes"
            )
        if kind == "opened" and not self.opened:
            self._open(answer.opened)
            return None
        if kind == "header" and self.opened:
            return self._begin(answer.header)
        if kind == "end" and self.opened:
            self._answers(answer.end.request_id)
            return EndOfData(answer.end.request_id, answer.end.position_count)
        raise ProtocolError(f"an unexpected message ({kind or 'of an unknown kind'})")

    def _open(self, opened: stream_pb2.StreamOpened) -> None:
        want = self._expected
        if opened.fingerprint != want.fingerprint:
            raise FingerprintError(
                f"the server's pipeline has fingerprint {opened.fingerprint!r}; the feed was "
                f"opened with {want.fingerprint!r}",
                expected=want.fingerprint,
                found=opened.fingerprint,
            )
        pairs = {
            "fields": (
                [field.SerializeToString(deterministic=True) for field in opened.spec],
                [field.to_proto().SerializeToString(deterministic=True) for field in want.spec],
            ),
            "batch size": (opened.batch_size, want.batch_size),
            "batch stride": (opened.batch_stride, want.stride),
            "seed": (opened.seed, want.seed),
        }
        for name, (found, wanted) in pairs.items():
            if found != wanted:
                detail = "" if name == "fields" else f" ({found}, not {wanted})"
                raise ProtocolError(f"the server opened the stream with another {name}{detail}")
        self.opened = True

    def _answers(self, request_id: int) -> Asked:
        asked = next(self._asked, None)
        if asked is None:
            raise ProtocolError(f"the server answers request {request_id}, which was not made")
        if request_id != asked.request_id:
            raise ProtocolError(
                f"the server answers request {request_id}; {asked.request_id} is next"
            )
        return asked

    def _begin(self, header: stream_pb2.BatchHeader) -> Received | None:
        asked = self._answers(header.request_id)
        if header.start != asked.start:
            raise ProtocolError(f"a batch at position {header.start}; {asked.start} was asked for")
        slots = self._expected.batch_size
        if len(header.sample_ids) != slots or len(header.mask) not in (0, slots):
            raise ProtocolError(
                f"a batch of {len(header.sample_ids)} sample ids and {len(header.mask)} mask "
                f"entries, where there are {slots} slots"
            )
        least = self._expected.payload_bytes
        # Another server may pad more than ours does, but not by much.
        padding = wire.ALIGNMENT * (len(self._expected.spec) + 1)
        if least is not None and not least <= header.payload_size <= least + padding:
            raise ProtocolError(
                f"a batch of {header.payload_size} bytes, where its fields take {least}"
            )
        wire.check_payload_size(header.payload_size)
        try:
            self._payload = self._buffers.take(header.payload_size)
        except MemoryError as error:
            raise ProtocolError(
                f"a batch of {header.payload_size} bytes, for which there is no memory here"
            ) from error
        self._header, self._filled = header, 0
        return self._finished()

    def _chunk(self, head: ChunkHead, begin: bytearray, read_into: ReadInto) -> Received | None:
        if self._header is None:
            raise ProtocolError("a chunk that belongs to no batch")
        end = self._filled + head.data_bytes
        if end > len(self._payload):
            raise ProtocolError(
                f"{end} bytes arrived of a batch of {len(self._payload)}, at position "
                f"{self._header.start}"
            )
        data = self._payload[self._filled : end]
        had = begin[head.data_begin :]
        data[: len(had)] = had
        read_into(data[len(had) :].data)  # from the network to where it stays
        if checksum(data) != head.checksum:
            raise ProtocolError(f"a chunk of {len(data)} bytes does not match its checksum")
        self._filled = end
        return self._finished()

    def _finished(self) -> Received | None:
        header = self._header
        if header is None or self._filled < header.payload_size:
            return None
        slots = self._expected.batch_size
        batch = Batch(
            wire.decode_batch(header, self._payload, self._expected.spec),
            start=header.start,
            epoch=header.epoch,
            sample_ids=np.array(header.sample_ids, np.int64),
            mask=np.array(header.mask, bool) if header.mask else np.ones(slots, bool),
        )
        # The batch alone holds the buffer now: its memory goes when the trainer lets go of it.
        self._header, self._payload = None, _NOTHING
        position_count = header.position_count or None
        return Received(header.request_id, batch, header.payload_size, position_count)


def _read(count: int, read_into: ReadInto) -> bytearray:
    data = bytearray(count)
    read_into(memoryview(data))
    return data


__all__ = ["Asked", "Assembler", "EndOfData", "Expected", "Received"]
