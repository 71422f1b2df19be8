"""Client cases with invalid messages from a server, played in process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from tests.stress.fuzz.odd import corrupt, mutate, odd_number, random_pieces
from tests.stress.fuzz.sessions import Session, plan_epoch, replay_messages

from infeed.batch import Batch
from infeed.shared.errors import InfeedError
from infeed.shared.spec import BYTES, PipelineSpec
from infeed.v1 import stream_pb2
from infeed.wire.assembler import ReceivedBatch
from infeed.wire.chunk import encode_chunk

Reply: TypeAlias = "Callable[[random.Random, Session], str]"
"""Plays one case and returns its outcome. Raises `WrongResultError`, or an unexpected error."""

REPLIES: list[Reply] = []


def reply(play: Reply) -> Reply:
    """Registers a function that plays cases."""
    REPLIES.append(play)
    return play


class WrongResultError(Exception):
    """Raised when the client returns a wrong batch or hangs."""


def run_client(
    session: Session, play: Callable[[], Iterator[ReceivedBatch]], *, same: bool = True
) -> str:
    """Returns the client's outcome: an `InfeedError`, or correct batches (equal ones if `same`)."""
    count = 0
    try:
        for received in play():
            compare(session, received.step, received.batch, same=same)
            count += 1
    except InfeedError as error:
        return type(error).__name__
    except EOFError:
        return "broke off"
    return "whole" if count == session.steps else "ended"


def compare(session: Session, step: int, batch: Batch, *, same: bool) -> None:
    """Checks a batch's position, fields and types, and with `same` its values.

    Raises `WrongResultError`.
    """
    expected = session.batches[step]
    if batch.start != expected.start or list(batch) != list(expected):
        raise WrongResultError(f"step {step} is another batch")
    for name, array in expected.items():
        actual = batch[name]
        if actual.shape != array.shape or actual.dtype != array.dtype:
            raise WrongResultError(f"step {step}: {name!r} is {actual.dtype}{actual.shape}")
        if array.dtype == object and not all(type(item) is bytes for item in actual.reshape(-1)):
            raise WrongResultError(f"step {step}: {name!r} has items that are not bytes")
        if same and not np.array_equal(actual, array):
            raise WrongResultError(f"step {step}: {name!r} has other values")
        if array.dtype == object and sum(map(len, actual.flat)) != sum(map(len, array.flat)):
            raise WrongResultError(f"step {step}: {name!r} does not hold each payload byte once")
    slots = session.plan.contract.batch_size
    if batch.mask.shape != (slots,) or batch.sample_ids.shape != (slots,):
        raise WrongResultError(f"step {step} has other slots")


@reply
def mutated_messages(rng: random.Random, session: Session) -> str:
    messages = list(session.messages)
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(messages))
        messages[index] = mutate(rng, messages[index])
    return run_client(session, lambda: replay_messages(session.assembler(), messages))


@reply
def shuffled_messages(rng: random.Random, session: Session) -> str:
    messages = list(session.messages)
    end = stream_pb2.EndOfData(request_id=rng.randrange(4), position_count=odd_number(rng))
    foreign = [
        b"",
        stream_pb2.StreamBatchesResponse(heartbeat={}).SerializeToString(),
        stream_pb2.StreamBatchesResponse(end=end).SerializeToString(),
        b"".join(encode_chunk([rng.randbytes(rng.randrange(200))])),
        b"\xa2\x06\x05hello",
    ]
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(messages))
        variant = rng.randrange(4)
        if variant == 0:
            del messages[index]
        elif variant == 1:
            messages.insert(index, rng.choice(messages))
        elif variant == 2:
            other = rng.randrange(len(messages))
            messages[index], messages[other] = messages[other], messages[index]
        else:
            messages.insert(index, rng.choice(foreign))
    # A chunk belongs to a batch only by its position, so values may differ.
    return run_client(session, lambda: replay_messages(session.assembler(), messages), same=False)


@reply
def odd_messages(rng: random.Random, session: Session) -> str:
    """Plays odd values in the description of the stream, or in the header of a batch."""
    messages = list(session.messages)
    parsed = [stream_pb2.StreamBatchesResponse.FromString(message) for message in messages]
    found = [item for item in parsed if item.WhichOneof("event") == "header"]
    chosen = parsed[0].opened if rng.random() < 0.2 else rng.choice(found).header
    for _ in range(rng.randint(1, 2)):
        corrupt(rng, chosen)
    if rng.random() < 0.8:  # else nearly all are refused for their checksum alone
        parsed[0].opened.has_checksums = False
    messages = [
        message if item.WhichOneof("event") == "chunk" else item.SerializeToString()
        for message, item in zip(messages, parsed, strict=True)
    ]
    return run_client(session, lambda: replay_messages(session.assembler(), messages))


@reply
def odd_pipeline(rng: random.Random, session: Session) -> str:
    """Plans a feed of a pipeline that a server describes with odd values."""
    message = session.spec.to_proto()
    for _ in range(rng.randint(1, 3)):
        corrupt(rng, message)
    try:
        plan_epoch(PipelineSpec.from_proto(message))
    except InfeedError as error:
        return type(error).__name__
    return "planned"


@reply
def other_payload(rng: random.Random, session: Session) -> str:
    """Plays a changed payload with a correct checksum, also in the offsets of byte strings."""
    messages = list(session.messages[:1])
    changed_step = rng.randrange(session.steps)
    sizes: list[int] = []
    payload = bytearray()
    for message in session.messages[1:]:
        response = stream_pb2.StreamBatchesResponse.FromString(message)
        if response.WhichOneof("event") == "header":
            sizes.append(response.header.payload_size)
            messages.append(message)
            payload = bytearray()
            continue
        payload += response.chunk.data
        if len(sizes) == changed_step + 1:
            data = bytes(payload)
            if session.spec.wire_spec[0].data_type == BYTES:
                data = _corrupt_table(rng, data, session.plan.contract.batch_size + 1)
            else:
                data = mutate(rng, data)
            cut = random_pieces(rng, data, 4)
            messages += [b"".join(encode_chunk([piece])) for piece in cut]
        else:
            messages.append(message)
    return run_client(session, lambda: replay_messages(session.assembler(), messages), same=False)


def _corrupt_table(rng: random.Random, payload: bytes, count: int) -> bytes:
    table = np.frombuffer(payload[: 8 * count], "<u8").copy()
    body = payload[8 * count :]
    length = len(body)
    ends = [0, 1, length, length + 1, length // 2, 1 << 63, (1 << 63) - 1, (1 << 64) - 1]
    ends += [(1 << 64) - 2, 1 << 62, 3 << 62]
    for _ in range(rng.randint(1, 3)):
        table[rng.randrange(count)] = rng.choice([*ends, *ends, rng.randrange(1 << 64)])
    return table.tobytes() + body
