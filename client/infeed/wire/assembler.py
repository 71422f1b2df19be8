"""Assembly of batches from the messages of one stream, checked before memory is allocated."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from infeed.batch import Batch
from infeed.shared.errors import FingerprintError, ProtocolError
from infeed.shared.report import ServerReport
from infeed.shared.spec import Array
from infeed.v1 import stream_pb2
from infeed.wire import batch as wire
from infeed.wire.buffer_pool import ALIGNMENT, BufferPool
from infeed.wire.chunk import MAX_HEAD_BYTES, ChunkHead, checksum, parse_head
from infeed.wire.received import (
    Draining,
    EndOfData,
    PendingRequest,
    ReceivedBatch,
    StreamContract,
)
from infeed.wire.shared_memory import BlockPool

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan

ReadInto = Callable[[memoryview], None]
"""Fills the memory with the next bytes of the message."""

_EMPTY = np.empty(0, np.uint8)

_MAY_BE_OFF = (stream_pb2.CHECKSUM_AUTO, stream_pb2.CHECKSUM_OFF)


class BatchAssembler:
    """Reads the messages of one stream, in order. Raises `ProtocolError` for an invalid one."""

    def __init__(
        self, contract: StreamContract, requests: deque[PendingRequest], buffers: BufferPool
    ) -> None:
        """`requests` are the stream's, in the order of the answers, which remove them."""
        self._contract = contract
        self._requests = requests
        self._buffers = buffers
        self._header: stream_pb2.BatchHeader | None = None
        self._payload = _EMPTY
        self._filled = 0
        self._began_at = 0.0
        self._span: BatchSpan | None = None
        self.is_open = False
        self._has_checksums = False
        self._has_payload_checksums = True
        self.shared_memory = stream_pb2.SharedMemory()
        """The shared memory that the server offers."""
        self.blocks: BlockPool | None = None
        """Set by the reader once it has received the blocks."""
        self.report_interval: float = 0.0
        """Minimum seconds between reports to the server; 0: it takes none."""

    def read_message(
        self, size: int, read_into: ReadInto
    ) -> ReceivedBatch | EndOfData | Draining | ServerReport | None:
        """Reads a message of `size` bytes; returns what it completes, if anything."""
        prefix = _read(min(size, MAX_HEAD_BYTES), read_into)
        if head := parse_head(prefix, size):
            return self._add_chunk(head, prefix, read_into)
        response = wire.parse_response(bytes(prefix + _read(size - len(prefix), read_into)))
        kind = response.WhichOneof("event")
        if kind == "chunk":  # in a valid encoding that `parse_head` does not take
            chunk = response.chunk
            head = ChunkHead(chunk.checksum, 0, len(chunk.data))
            return self._add_chunk(head, bytearray(chunk.data), read_into)
        if kind == "heartbeat":
            return None
        if kind == "draining":
            return Draining()
        if kind == "report":
            try:
                return ServerReport.from_proto(response.report)
            except ValueError as error:
                raise ProtocolError(f"an invalid report: {error}") from error
        if self._header is not None:
            raise ProtocolError(
                f"the batch at position {self._header.start} ended after {self._filled} of "
                f"{self._header.payload_size} bytes"
            )
        if kind == "opened" and not self.is_open:
            self._open(response.opened)
            return None
        if kind == "header" and self.is_open:
            return self._start_batch(response.header)
        if kind == "end" and self.is_open:
            end = response.end
            self._check(self._match_request(end.request_id), end)
            return EndOfData(end.request_id, end.position_count)
        raise ProtocolError(f"unexpected message ({kind or 'of an unknown kind'})")

    def _open(self, opened: stream_pb2.StreamOpened) -> None:
        contract = self._contract
        if opened.fingerprint != contract.fingerprint:
            raise FingerprintError(
                f"the server's pipeline has fingerprint {opened.fingerprint!r}; the feed was "
                f"opened with {contract.fingerprint!r}"
            )
        pairs = {
            "fields": (
                [field.SerializeToString(deterministic=True) for field in opened.spec],
                [field.to_proto().SerializeToString(deterministic=True) for field in contract.spec],
            ),
            "batch size": (opened.batch_size, contract.batch_size),
            "batch stride": (opened.batch_stride, contract.stride),
            "seed": (opened.seed, contract.seed),
            # An older server echoes the request's segments without reading them.
            "number of segments": (opened.segments, len(contract.opening.lineage.segments)),
        }
        if opened.has_checksums:
            pairs["options"] = (opened.request, contract.opening)
        for name, (actual, expected) in pairs.items():
            if actual != expected:
                raise ProtocolError(
                    f"the server opened the stream with the wrong {name} ({actual}, not "
                    f"{expected}); use the same version of infeed at both ends"
                )
        self.report_interval = opened.report_interval_seconds
        self._has_checksums = opened.has_checksums
        may_be_off = contract.opening.checksum in _MAY_BE_OFF
        self._has_payload_checksums = not (
            may_be_off and opened.checksum == stream_pb2.CHECKSUM_OFF
        )
        self.shared_memory = opened.shared_memory
        self.is_open = True

    def _match_request(self, request_id: int) -> PendingRequest:
        """Returns the next request, which this answer must be for."""
        if not self._requests:
            raise ProtocolError(f"response to request {request_id}, but none is pending")
        request = self._requests.popleft()
        expected = request.message.request_id
        if request_id != expected:
            raise ProtocolError(f"response to request {request_id} instead of {expected}")
        return request

    def _check(
        self, request: PendingRequest, answer: stream_pb2.BatchHeader | stream_pb2.EndOfData
    ) -> None:
        """Raises `ProtocolError` for an answer that does not match its checksum."""
        expected = wire.answer_checksum(request.message, answer, self._contract.spec)
        if self._has_checksums and answer.checksum != expected:
            raise ProtocolError(
                f"the answer for position {request.message.start} does not match its checksum"
            )

    def _start_batch(self, header: stream_pb2.BatchHeader) -> ReceivedBatch | None:
        request = self._match_request(header.request_id)
        expected = request.message.start
        if header.start != expected:
            raise ProtocolError(f"a batch at position {header.start} instead of {expected}")
        slots = self._contract.batch_size
        if len(header.sample_ids) != slots or len(header.mask) not in (0, slots):
            raise ProtocolError(
                f"a batch of {len(header.sample_ids)} sample ids and {len(header.mask)} mask "
                f"entries for {slots} slots"
            )
        min_bytes = self._contract.payload_bytes
        # Other server implementations may pad more than infeed's, within limits.
        padding = ALIGNMENT * (len(self._contract.spec) + 1)
        if min_bytes is not None and not min_bytes <= header.payload_size <= min_bytes + padding:
            raise ProtocolError(
                f"a batch of {header.payload_size} bytes, whose fields take {min_bytes}"
            )
        if not 0 <= header.payload_size <= wire.MAX_PAYLOAD_BYTES:
            raise ProtocolError(f"a payload of {header.payload_size} bytes")
        self._check(request, header)
        self._began_at = time.monotonic()
        self._header, self._filled, self._span = header, 0, request.span
        if header.block:
            self._payload, self._filled = self._shared_payload(header), header.payload_size
            return self._finish_batch()
        if self.blocks is not None:
            self.blocks.on_copied()
        try:
            self._payload = self._buffers.allocate(header.payload_size)
        except MemoryError as error:
            raise ProtocolError(f"no memory for a batch of {header.payload_size} bytes") from error
        return self._finish_batch()

    def _shared_payload(self, header: stream_pb2.BatchHeader) -> Array:
        """Returns the payload in the header's block of shared memory."""
        if self.blocks is None:
            raise ProtocolError(f"a batch in block {header.block}, but there are no blocks")
        payload = self.blocks.lend(header.block, header.payload_size)
        if self._has_payload_checksums and checksum(payload.data) != header.payload_checksum:
            raise ProtocolError(f"the batch in block {header.block} does not match its checksum")
        return payload

    def _add_chunk(
        self, head: ChunkHead, prefix: bytearray, read_into: ReadInto
    ) -> ReceivedBatch | None:
        if self._header is None:
            raise ProtocolError("a chunk outside of a batch")
        end = self._filled + head.data_size
        if end > len(self._payload):
            raise ProtocolError(f"{end} bytes for a batch of {len(self._payload)} bytes")
        data = self._payload[self._filled : end]
        already_read = prefix[head.data_offset :]
        data[: len(already_read)] = already_read
        read_into(data[len(already_read) :].data)  # from the socket, without another copy
        if self._has_payload_checksums and checksum(data.data) != head.checksum:
            raise ProtocolError(f"a chunk of {len(data)} bytes does not match its checksum")
        self._filled = end
        return self._finish_batch()

    def _finish_batch(self) -> ReceivedBatch | None:
        """Returns the batch if it is complete."""
        header = self._header
        if header is None or self._filled < header.payload_size:
            return None
        slots = self._contract.batch_size
        batch = Batch(
            wire.decode_batch(header, self._payload, self._contract.spec),
            start=header.start,
            epoch=header.epoch,
            sample_ids=np.array(header.sample_ids, np.int64),
            mask=np.array(header.mask, bool) if header.mask else np.ones(slots, bool),
            parts=self._contract.parts,
        )
        # Only the batch refers to the buffer now, so the trainer's last reference frees it.
        self._header, self._payload = None, _EMPTY
        return ReceivedBatch(
            step=header.request_id,
            batch=batch,
            payload_bytes=header.payload_size,
            position_count=header.position_count or None,
            receive_seconds=time.monotonic() - self._began_at,
            span=self._span,
        )


def _read(count: int, read_into: ReadInto) -> bytearray:
    data = bytearray(count)
    read_into(memoryview(data))
    return data
