"""Messages that no correct server sends are told, not believed."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed import wire
from infeed.assembly import Asked, Assembler, EndOfData, Expected, Received
from infeed.buffers import Buffers
from infeed.checksum import checksum
from infeed.chunk import encode_chunk
from infeed.errors import FingerprintError, ProtocolError
from infeed.spec import FieldSpec
from infeed.v1 import stream_pb2

SPEC = (FieldSpec("x", "float32", (5,)), FieldSpec("label", "int64"))
EXPECTED = Expected(fingerprint="ab", spec=SPEC, batch_size=3, stride=3, seed=9)


def response(**event: Any) -> bytes:
    return stream_pb2.StreamBatchesResponse(**event).SerializeToString()


def opened(**change: Any) -> bytes:
    told = {
        "fingerprint": "ab",
        "spec": [field.to_proto() for field in SPEC],
        "batch_size": 3,
        "seed": 9,
        "batch_stride": 3,
    }
    return response(opened=stream_pb2.StreamOpened(**{**told, **change}))


def frames(request_id: int = 0, start: int = 12) -> list[bytes]:
    arrays = {"x": np.arange(15, dtype=np.float32).reshape(3, 5), "label": np.arange(3)}
    ids, mask = np.array([4, 5, -1]), np.array([True, True, False])
    batch = wire.encode_batch(request_id, start, 1, SPEC, arrays, ids, mask)
    return [b"".join(pieces) for pieces in batch.frames(chunk_bytes=40)]


class Message:
    """A message as a call gives it: piece by piece, to its end and no further."""

    def __init__(self, data: bytes) -> None:
        self.rest = data
        self.asked: list[memoryview] = []

    def read_into(self, memory: memoryview) -> None:
        assert len(memory) <= len(self.rest)
        memory[:] = self.rest[: len(memory)]
        self.rest = self.rest[len(memory) :]
        self.asked.append(memory)


def new_assembler(buffers: Buffers | None = None) -> Assembler:
    return Assembler(EXPECTED, iter([Asked(0, 12), Asked(1, 18)]), buffers or Buffers())


def take(assembler: Assembler, data: bytes) -> Any:
    message = Message(data)
    done = assembler.take(len(data), message.read_into)
    assert not message.rest
    return done


def assemble(*messages: bytes) -> list[Any]:
    assembler = new_assembler()
    return [done for message in messages if (done := take(assembler, message)) is not None]


def test_whole_batches() -> None:
    beat = response(heartbeat=stream_pb2.Heartbeat())
    head, *chunks = frames()
    first, second = assemble(beat, opened(), head, beat, *chunks, beat, *frames(1, 18))
    assert isinstance(first, Received)
    assert (first.batch.start, first.batch.epoch, first.batch.slots) == (12, 1, 3)
    assert first.batch.sample_ids.tolist() == [4, 5, -1]
    assert first.batch.mask.tolist() == [True, True, False]
    assert first.batch["x"].tolist() == np.arange(15.0).reshape(3, 5).tolist()
    assert first.payload_bytes == 64 + 24
    assert second.batch.start == 18
    assert all(array.ctypes.data % wire.ALIGNMENT == 0 for array in first.batch.values())
    # Each batch has memory of its own, which the trainer may keep and write to.
    second.batch["x"][:] = 0
    assert first.batch["x"].any()


def test_end_of_data() -> None:
    end = response(end=stream_pb2.EndOfData(request_id=0, position_count=11))
    assert assemble(opened(), end) == [EndOfData(0, 11)]


def test_expected_bytes() -> None:
    assert EXPECTED.payload_bytes == 64 + 24
    text = Expected("ab", (FieldSpec("text", "bytes"),), 3, 3, 9)
    assert text.payload_bytes is None


WORDS = (FieldSpec("word", "bytes"),)


def words(payload_size: int | None = None) -> list[Any]:
    """What becomes of a batch of byte strings, whose header may tell another size."""
    arrays = {"word": np.array([b"a", b"", b"longer"], object)}
    ids, mask = np.arange(3), np.ones(3, bool)
    head, *chunks = map(b"".join, wire.encode_batch(0, 12, 1, WORDS, arrays, ids, mask).frames())
    if payload_size is not None:
        answer = wire.parse(head)
        answer.header.payload_size = payload_size
        head = answer.SerializeToString()
    assembler = Assembler(Expected("ab", WORDS, 3, 3, 9), iter([Asked(0, 12)]), Buffers())
    spec = [field.to_proto() for field in WORDS]
    return [take(assembler, message) for message in (opened(spec=spec), head, *chunks)]


def test_byte_strings_take_what_they_need_up_to_a_limit() -> None:
    assert words()[-1].batch["word"].tolist() == [b"a", b"", b"longer"]
    for size in (-1, wire.MAX_PAYLOAD_BYTES + 1):
        with pytest.raises(ProtocolError, match=f"{size}"):
            words(size)


def test_another_fingerprint() -> None:
    with pytest.raises(FingerprintError, match=r"'cd'.*'ab'"):
        assemble(opened(fingerprint="cd"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch_size": 4}, r"another batch size \(4, not 3\)"),
        ({"batch_stride": 1}, r"another batch stride \(1, not 3\)"),
        ({"seed": 1}, r"another seed \(1, not 9\)"),
        ({"spec": []}, "another fields"),
    ],
)
def test_a_stream_of_something_else(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        assemble(opened(**change))


HEAD, *CHUNKS = frames()
END = response(end=stream_pb2.EndOfData(request_id=0, position_count=11))
END_OF_ANOTHER = response(end=stream_pb2.EndOfData(request_id=3, position_count=11))


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([HEAD], "unexpected message .header"),
        ([END], "unexpected message .end"),
        ([opened(), opened()], "unexpected message .opened"),
        ([b""], "of an unknown kind"),
        ([b"\xff\xff"], "cannot be parsed"),
        ([opened(), CHUNKS[0]], "belongs to no batch"),
        ([opened(), HEAD, HEAD], "broke off after 0 of 88"),
        ([opened(), HEAD, CHUNKS[0], END], "broke off after 40 of 88"),
        ([opened(), END_OF_ANOTHER], "answers request 3; 0 is next"),
        ([opened(), HEAD, *CHUNKS[:2], CHUNKS[0]], "120 bytes arrived of a batch of 88"),
        ([opened(), *frames(3, 12)], "answers request 3; 0 is next"),
        ([opened(), *frames(0, 13)], "position 13; 12 was asked"),
        ([opened(), *frames(), *frames(1, 18), *frames(2, 24)], "request 2, which was not made"),
        ([opened(), HEAD, CHUNKS[0][:-1] + b"!"], "checksum"),
    ],
)
def test_messages_in_a_wrong_order(messages: list[bytes], told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        assemble(*messages)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda header: header.sample_ids.pop(), "2 sample ids.*3 slots"),
        (lambda header: header.mask.pop(), "2 mask.*3 slots"),
        (lambda header: setattr(header, "payload_size", 1 << 35), "fields take 88"),
        (lambda header: setattr(header, "payload_size", 0), "fields take 88"),
        (lambda header: setattr(header, "payload_size", -1), "fields take 88"),
        (lambda header: header.layouts.pop(), "1 fields, where 2"),
        (lambda header: setattr(header.layouts[1], "offset", 128), "lies outside"),
    ],
)
def test_headers_that_make_no_sense(change: Any, told: str) -> None:
    answer = wire.parse(HEAD)
    change(answer.header)
    with pytest.raises(ProtocolError, match=told):
        assemble(opened(), answer.SerializeToString(), *CHUNKS)


def test_the_payload_is_read_to_where_it_stays() -> None:
    x = np.arange(3 * 5, dtype=np.float32).reshape(3, 5)
    arrays = {"x": x, "label": np.arange(3)}
    ids, mask = np.arange(3), np.ones(3, bool)
    head, chunk = map(b"".join, wire.encode_batch(0, 12, 1, SPEC, arrays, ids, mask).frames())
    assembler = new_assembler()
    take(assembler, opened())
    take(assembler, head)
    message = Message(chunk)
    done = assembler.take(len(chunk), message.read_into)
    assert isinstance(done, Received)
    # All but what came with the head.
    assert len(message.asked[-1]) == len(chunk) - 24
    assert np.shares_memory(np.frombuffer(message.asked[-1], np.uint8), done.batch["label"])


def test_a_chunk_in_any_valid_encoding_is_read() -> None:
    messages = [opened(), HEAD]
    for chunk in CHUNKS:
        data = wire.parse(chunk).chunk.data
        told = checksum(np.frombuffer(data, np.uint8)).to_bytes(4, "little")
        # The fields the other way round, as another library may write them.
        body = bytes((0x12, len(data))) + data + b"\x0d" + told
        messages.append(bytes((0x7A, len(body))) + body)
    (received,) = assemble(*messages)
    assert received.batch["x"].tolist() == np.arange(15.0).reshape(3, 5).tolist()


def test_empty_chunks_add_nothing() -> None:
    (received,) = assemble(opened(), HEAD, b"".join(encode_chunk([])), *CHUNKS)
    assert received.payload_bytes == 64 + 24


@pytest.mark.parametrize("at", range(len(CHUNKS[0])))
def test_damage_is_found_wherever_it_is(at: int) -> None:
    for bit in range(8):
        damaged = bytearray(CHUNKS[0])
        damaged[at] ^= 1 << bit
        with pytest.raises(ProtocolError):
            # A head that is damaged may pass for another message, which answers nothing here.
            assemble(opened(), HEAD, bytes(damaged), *CHUNKS)


@examples(200)
@given(st.binary(max_size=60), st.booleans())
def test_noise_is_refused_or_read_but_never_crashes(noise: bytes, begun: bool) -> None:
    for data in (noise, b"\x7a" + noise):
        with contextlib.suppress(ProtocolError, FingerprintError):
            assemble(opened(), *([HEAD] if begun else []), data)


@examples(100)
@given(st.data())
def test_a_cut_chunk_is_never_taken_for_whole(data: st.DataObject) -> None:
    cut = CHUNKS[0][: data.draw(st.integers(1, len(CHUNKS[0]) - 1))]
    with pytest.raises(ProtocolError):
        assemble(opened(), HEAD, cut)


def test_nothing_is_set_aside_for_a_header_that_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    take_memory = Buffers.take

    def spy(self: Buffers, size: int) -> Any:
        taken.append(size)
        return take_memory(self, size)

    monkeypatch.setattr(Buffers, "take", spy)
    answer = wire.parse(HEAD)
    answer.header.payload_size = 1 << 35
    with pytest.raises(ProtocolError):
        assemble(opened(), answer.SerializeToString())
    assert taken == []


def test_a_batch_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_memory(self: Buffers, size: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(Buffers, "take", take_memory)
    with pytest.raises(ProtocolError, match="no memory"):
        assemble(opened(), HEAD)
