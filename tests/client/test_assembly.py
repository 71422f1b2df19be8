"""Messages that no correct server sends are told, not believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed import wire
from infeed.assembly import Asked, Assembler, EndOfData, Expected, Received
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
    return list(batch.frames(chunk_bytes=40))


def assemble(*messages: bytes) -> list[Any]:
    assembler = Assembler(EXPECTED, iter([Asked(0, 12), Asked(1, 18)]))
    return [done for message in messages if (done := assembler.take(message)) is not None]


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
    # Each batch has memory of its own, which the trainer may keep and write to.
    second.batch["x"][:] = 0
    assert first.batch["x"].any()


def test_end_of_data() -> None:
    end = response(end=stream_pb2.EndOfData(request_id=0, position_count=11))
    assert assemble(opened(), end) == [EndOfData(11)]


def test_expected_bytes() -> None:
    assert EXPECTED.payload_bytes == 64 + 24
    text = Expected("ab", (FieldSpec("text", "bytes"),), 3, 3, 9)
    assert text.payload_bytes is None


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
