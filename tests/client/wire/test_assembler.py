"""Assembly of batches: valid streams, and messages that no correct server sends."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

import numpy as np
import pytest
from tests.harness.blocks import SharingServer

from infeed.shared.errors import FingerprintError, ProtocolError
from infeed.shared.spec import FieldSpec
from infeed.v1 import stream_pb2
from infeed.wire import batch as wire
from infeed.wire.assembler import (
    BatchAssembler,
    EndOfData,
    PendingRequest,
    ReceivedBatch,
    StreamContract,
)
from infeed.wire.buffer_pool import ALIGNMENT, BufferPool

SPEC = (FieldSpec("x", "float32", (5,)), FieldSpec("label", "int64"))
READ: dict[str, Any] = {"pipeline": "p", "epochs": 2, "rank": 1, "world_size": 2}
OPENING = stream_pb2.StreamOpen(**READ)
CONTRACT = StreamContract("ab", SPEC, batch_size=3, stride=3, seed=9, opening=OPENING)


def response(**event: Any) -> bytes:
    return stream_pb2.StreamBatchesResponse(**event).SerializeToString()


def opened(**change: Any) -> bytes:
    fields = {
        "fingerprint": "ab",
        "spec": [field.to_proto() for field in SPEC],
        "batch_size": 3,
        "seed": 9,
        "batch_stride": 3,
        "has_checksums": True,
        "request": OPENING,
    }
    return response(opened=stream_pb2.StreamOpened(**{**fields, **change}))


def request(request_id: int = 0, start: int = 12) -> stream_pb2.BatchRequest:
    return stream_pb2.BatchRequest(request_id=request_id, start=start, count=3, step_end=start + 6)


def batch_messages(request_id: int = 0, start: int = 12, memory: Any = None) -> list[bytes]:
    arrays = {"x": np.arange(15, dtype=np.float32).reshape(3, 5), "label": np.arange(3)}
    ids, mask = np.array([4, 5, -1]), np.array([True, True, False])
    batch = wire.encode_batch(
        request(request_id, start), start, 1, wire.Payload(SPEC, arrays), ids, mask
    )
    if memory is not None:
        batch = batch.in_block(request(request_id, start), 1, memory)
    return [b"".join(pieces) for pieces in batch.messages(chunk_bytes=40)]


class Message:
    """A message that is read in parts, like one of a call, and not beyond its end."""

    def __init__(self, data: bytes) -> None:
        self.rest = data
        self.reads: list[memoryview] = []

    def read_into(self, memory: memoryview) -> None:
        assert len(memory) <= len(self.rest)
        memory[:] = self.rest[: len(memory)]
        self.rest = self.rest[len(memory) :]
        self.reads.append(memory)


def new_assembler(buffers: BufferPool | None = None) -> BatchAssembler:
    return BatchAssembler(
        CONTRACT, deque(map(PendingRequest, (request(), request(1, 18)))), buffers or BufferPool()
    )


def read(assembler: BatchAssembler, data: bytes) -> Any:
    message = Message(data)
    result = assembler.read_message(len(data), message.read_into)
    assert not message.rest
    return result


def assemble(*messages: bytes) -> list[Any]:
    assembler = new_assembler()
    return [result for data in messages if (result := read(assembler, data)) is not None]


@pytest.mark.parametrize("offset", [None, 0, 87])
def test_a_batch_in_shared_memory_is_verified(offset: int | None) -> None:
    server, assembler = SharingServer(), new_assembler()
    read(assembler, opened())
    assembler.blocks = server.pool
    (header,) = batch_messages(memory=server.memory[0])
    if offset is None:
        batch = read(assembler, header).batch
        assert batch["label"].tolist() == [0, 1, 2]
        return
    server.memory[0][offset] ^= 1
    with pytest.raises(ProtocolError, match="block 1 does not match its checksum"):
        read(assembler, header)


def test_a_batch_in_a_block_without_shared_memory_is_an_error() -> None:
    (header,) = batch_messages(memory=np.zeros(128, np.uint8))
    with pytest.raises(ProtocolError, match="in block 1, but there are no blocks"):
        assemble(opened(), header)


def test_batches() -> None:
    heartbeat = response(heartbeat=stream_pb2.Heartbeat())
    head, *chunks = batch_messages()
    first, second = assemble(
        heartbeat, opened(), head, heartbeat, *chunks, heartbeat, *batch_messages(1, 18)
    )
    assert isinstance(first, ReceivedBatch)
    assert (first.batch.start, first.batch.epoch, first.batch.slots) == (12, 1, 3)
    assert first.batch.sample_ids.tolist() == [4, 5, -1]
    assert first.batch.mask.tolist() == [True, True, False]
    assert first.batch["x"].tolist() == np.arange(15.0).reshape(3, 5).tolist()
    assert first.payload_bytes == 64 + 24
    assert second.batch.start == 18
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in first.batch.values())
    # Each batch has its own memory, which the trainer may keep and write to.
    second.batch["x"][:] = 0
    assert first.batch["x"].any()


def test_end_of_data() -> None:
    end = response(end=wire.encode_end(request(), 11))
    assert assemble(opened(), end) == [EndOfData(0, 11)]


def test_payload_bytes_of_a_contract() -> None:
    assert CONTRACT.payload_bytes == 64 + 24
    text = StreamContract("ab", (FieldSpec("text", "bytes"),), 3, 3, 9, OPENING)
    assert text.payload_bytes is None


def test_wrong_fingerprint_is_refused() -> None:
    with pytest.raises(FingerprintError, match=r"'cd'.*'ab'"):
        assemble(opened(fingerprint="cd"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"batch_size": 4}, r"wrong batch size \(4, not 3\)"),
        ({"batch_stride": 1}, r"wrong batch stride \(1, not 3\)"),
        ({"segments": 1}, r"wrong number of segments \(1, not 0\).*same version"),
        ({"request": None}, "wrong options"),
        *(
            ({"request": stream_pb2.StreamOpen(**{**READ, name: 0})}, "wrong options")
            for name in ("epochs", "rank", "world_size")
        ),
        ({"seed": 1}, r"wrong seed \(1, not 9\)"),
        ({"spec": []}, "wrong fields"),
    ],
)
def test_wrong_stream_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        assemble(opened(**change))


HEAD, *CHUNKS = batch_messages()
END = response(end=wire.encode_end(request(), 11))
WRONG_END = response(end=stream_pb2.EndOfData(request_id=3, position_count=11))


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([HEAD], "unexpected message .header"),
        ([END], "unexpected message .end"),
        ([opened(), opened()], "unexpected message .opened"),
        ([b""], "of an unknown kind"),
        ([b"\xff\xff"], "cannot be parsed"),
        ([opened(), CHUNKS[0]], "outside of a batch"),
        ([opened(), HEAD, HEAD], "ended after 0 of 88"),
        ([opened(), HEAD, CHUNKS[0], END], "ended after 40 of 88"),
        ([opened(), WRONG_END], "request 3 instead of 0"),
        ([opened(), HEAD, *CHUNKS[:2], CHUNKS[0]], "120 bytes for a batch of 88"),
        ([opened(), *batch_messages(3, 12)], "request 3 instead of 0"),
        ([opened(), *batch_messages(0, 13)], "position 13 instead of 12"),
        (
            [opened(), *batch_messages(), *batch_messages(1, 18), *batch_messages(2, 24)],
            "request 2, but none is pending",
        ),
        ([opened(), HEAD, CHUNKS[0][:-1] + b"!"], "checksum"),
    ],
)
def test_invalid_messages_are_refused(messages: list[bytes], text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        assemble(*messages)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda header: header.sample_ids.pop(), "2 sample ids.*3 slots"),
        (lambda header: header.mask.pop(), "2 mask.*3 slots"),
        (lambda header: setattr(header, "payload_size", 1 << 35), "fields take 88"),
        (lambda header: setattr(header, "payload_size", 0), "fields take 88"),
        (lambda header: setattr(header, "payload_size", -1), "fields take 88"),
        (lambda header: header.layouts.pop(), "1 fields instead of 2"),
        (lambda header: setattr(header.layouts[1], "offset", 128), "lies outside"),
    ],
)
def test_invalid_headers_are_refused(change: Any, text: str) -> None:
    message = wire.parse_response(HEAD)
    change(message.header)
    with pytest.raises(ProtocolError, match=text):
        assemble(opened(has_checksums=False), message.SerializeToString(), *CHUNKS)


def test_payload_is_read_without_a_copy() -> None:
    x = np.arange(3 * 5, dtype=np.float32).reshape(3, 5)
    arrays = {"x": x, "label": np.arange(3)}
    ids, mask = np.arange(3), np.ones(3, bool)
    head, chunk = map(
        b"".join,
        wire.encode_batch(request(), 12, 1, wire.Payload(SPEC, arrays), ids, mask).messages(),
    )
    assembler = new_assembler()
    read(assembler, opened())
    read(assembler, head)
    message = Message(chunk)
    result = assembler.read_message(len(chunk), message.read_into)
    assert isinstance(result, ReceivedBatch)
    # All but the bytes that were read with the head.
    assert len(message.reads[-1]) == len(chunk) - 24
    assert np.shares_memory(np.frombuffer(message.reads[-1], np.uint8), result.batch["label"])


@pytest.mark.parametrize("offset", range(len(CHUNKS[0])))
def test_any_bit_flip_is_detected(offset: int) -> None:
    for bit in range(8):
        damaged = bytearray(CHUNKS[0])
        damaged[offset] ^= 1 << bit
        with pytest.raises(ProtocolError):
            # A chunk with a damaged head may be another message, which is not expected here.
            assemble(opened(), HEAD, bytes(damaged), *CHUNKS)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.sample_ids.__setitem__(0, 501),
        lambda header: header.mask.__setitem__(0, False),
        lambda header: header.mask.__delitem__(slice(None)),
        lambda header: setattr(header, "epoch", 2),
        lambda header: setattr(header, "position_count", 13),
        lambda header: setattr(header, "payload_size", header.payload_size + 64),
        lambda header: setattr(header.layouts[1], "offset", 0),
        lambda header: setattr(header.layouts[1], "size", 8),
        lambda header: setattr(header, "checksum", header.checksum ^ 1),
        lambda header: header.ClearField("checksum"),
    ],
)
def test_changed_field_of_a_header_is_refused(change: Any) -> None:
    message = wire.parse_response(HEAD)
    change(message.header)
    with pytest.raises(ProtocolError, match="position 12 does not match its checksum"):
        assemble(opened(), message.SerializeToString(), *CHUNKS)


def test_header_without_checksum_of_an_older_server_is_read() -> None:
    message = wire.parse_response(HEAD)
    message.header.ClearField("checksum")
    (received,) = assemble(opened(has_checksums=False), message.SerializeToString(), *CHUNKS)
    assert received.batch.sample_ids.tolist() == [4, 5, -1]


@pytest.mark.parametrize("field", ["start", "count", "min_position_count", "step_end"])
def test_answer_to_a_changed_request_is_refused(field: str) -> None:
    changed = request()
    setattr(changed, field, getattr(changed, field) ^ 1)
    end = response(end=wire.encode_end(changed, 11))
    with pytest.raises(ProtocolError, match="does not match its checksum"):
        assemble(opened(), end)


def test_bit_flip_never_changes_an_answer() -> None:
    expected = str(assemble(opened(), HEAD, *CHUNKS)[0].batch.__dict__)
    for message in (HEAD, END):
        for position in range(8 * len(message)):
            damaged = bytearray(message)
            damaged[position // 8] ^= 1 << position % 8
            with contextlib.suppress(ProtocolError):
                # Read as a message that answers nothing, no chunk may follow.
                received = assemble(opened(), bytes(damaged), *CHUNKS)
                assert [str(batch.batch.__dict__) for batch in received] == [expected]


def test_invalid_header_allocates_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    allocate = BufferPool.allocate

    def record(self: BufferPool, size: int) -> Any:
        sizes.append(size)
        return allocate(self, size)

    monkeypatch.setattr(BufferPool, "allocate", record)
    message = wire.parse_response(HEAD)
    message.header.payload_size = 1 << 35
    with pytest.raises(ProtocolError):
        assemble(opened(), message.SerializeToString())
    assert sizes == []
