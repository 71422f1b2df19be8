"""What a server might send instead of what it should: cases against the client, in process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from tests.stress.fuzz.calls import numbers, strings
from tests.stress.fuzz.case import Kinds, mutated, pieces
from tests.stress.fuzz.sessions import Session, replay

from infeed.assembly import Received
from infeed.batch import Batch
from infeed.chunk import encode_chunk
from infeed.errors import InfeedError
from infeed.spec import BYTES
from infeed.v1 import stream_pb2

Reply: TypeAlias = "Callable[[random.Random, Session], str]"
"""Plays one case; gives how it ended. Raises `WrongError`, or what the client should not have."""

REPLIES: Kinds[Reply] = Kinds()


class WrongError(Exception):
    """The client handed out what it must not."""


def judged(session: Session, play: Callable[[], Iterator[Received]], *, same: bool = True) -> str:
    """How the client ends: with an error of its own, or with batches that are right (`same`)."""
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


def compare(
    session: Session, step: int, batch: Batch, *, same: bool, right: Batch | None = None
) -> None:
    """What has a checksum must be as it was (`right`); the rest, of the right kind."""
    right = session.batches[step] if right is None else right
    if batch.start != right.start or list(batch) != list(right):
        raise WrongError(f"step {step} is another batch")
    for name, array in right.items():
        found = batch[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            raise WrongError(f"step {step}: {name!r} is {found.dtype}{found.shape}")
        if array.dtype == object and not all(type(one) is bytes for one in found.reshape(-1)):
            raise WrongError(f"step {step}: {name!r} holds what is no byte string")
        if same and not np.array_equal(found, array):
            raise WrongError(f"step {step}: {name!r} has other values")
        if array.dtype == object and sum(map(len, found.flat)) != sum(map(len, array.flat)):
            raise WrongError(f"step {step}: {name!r} is not what the payload holds, each byte once")
    slots = session.expected.batch_size
    if batch.mask.shape != (slots,) or batch.sample_ids.shape != (slots,):
        raise WrongError(f"step {step} has other slots")


@REPLIES.add(4)
def mutated_messages(rng: random.Random, session: Session) -> str:
    messages = list(session.messages)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(messages))
        messages[at] = mutated(rng, messages[at])
    return judged(session, lambda: replay(session.assembler(), messages))


@REPLIES.add(3)
def shuffled_messages(rng: random.Random, session: Session) -> str:
    messages = list(session.messages)
    end = stream_pb2.EndOfData(request_id=rng.randrange(4), position_count=numbers(rng))
    strangers = [
        b"",
        stream_pb2.StreamBatchesResponse(heartbeat={}).SerializeToString(),
        stream_pb2.StreamBatchesResponse(end=end).SerializeToString(),
        b"".join(encode_chunk([rng.randbytes(rng.randrange(200))])),
        b"\xa2\x06\x05hello",
    ]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(messages))
        way = rng.randrange(4)
        if way == 0:
            del messages[at]
        elif way == 1:
            messages.insert(at, rng.choice(messages))
        elif way == 2:
            other = rng.randrange(len(messages))
            messages[at], messages[other] = messages[other], messages[at]
        else:
            messages.insert(at, rng.choice(strangers))
    # Nothing says to which batch a chunk belongs but its place.
    return judged(session, lambda: replay(session.assembler(), messages), same=False)


@REPLIES.add(2)
def odd_opened(rng: random.Random, session: Session) -> str:
    first = stream_pb2.StreamBatchesResponse.FromString(session.messages[0])
    opened = first.opened
    field = rng.choice(opened.spec)
    way = rng.randrange(8)
    if way == 0:
        opened.fingerprint = strings(rng)
    elif way == 1:
        field.name = strings(rng)
    elif way == 2:
        field.data_type = numbers(rng, 32)
    elif way == 3:
        field.shape.append(numbers(rng))
    elif way == 4:
        del opened.spec[rng.randrange(len(opened.spec))]
    elif way == 5:
        opened.spec.add().CopyFrom(field)
    else:
        setattr(opened, rng.choice(("batch_size", "seed", "batch_stride")), numbers(rng))
    messages = [first.SerializeToString(), *session.messages[1:]]
    return judged(session, lambda: replay(session.assembler(), messages))


@REPLIES.add(8)
def odd_header(rng: random.Random, session: Session) -> str:
    """Of one batch: values at their ends, lists of other lengths."""
    messages = list(session.messages)
    parsed = [stream_pb2.StreamBatchesResponse.FromString(message) for message in messages]
    headers = [at for at, one in enumerate(parsed) if one.WhichOneof("event") == "header"]
    at = rng.choice(headers)
    header = parsed[at].header
    for _ in range(rng.randint(1, 2)):
        _spoil(rng, header)
    messages[at] = parsed[at].SerializeToString()
    return judged(session, lambda: replay(session.assembler(), messages))


def _spoil(rng: random.Random, header: stream_pb2.BatchHeader) -> None:
    layouts = header.layouts
    way = rng.randrange(9)
    if way == 0:
        header.request_id = rng.choice((numbers(rng) % (1 << 64), header.request_id + 1))
    elif way == 1:
        header.start = numbers(rng)
    elif way == 2:
        header.payload_size = rng.choice((numbers(rng), header.payload_size + 64, 0, 1 << 36))
    elif way == 3 and layouts:
        layout = rng.choice(layouts)
        layout.offset = rng.choice((numbers(rng), layout.offset + 64, layout.offset + 1, 0))
    elif way == 4 and layouts:
        layout = rng.choice(layouts)
        layout.size = rng.choice((numbers(rng), layout.size + 64, layout.size - 1, 0))
    elif way == 5 and layouts:
        layouts.add().CopyFrom(rng.choice(layouts))
    elif way == 6 and layouts:
        order = list(layouts)
        rng.shuffle(order)
        kept = [type(one).FromString(one.SerializeToString()) for one in order]
        del layouts[:]
        layouts.extend(kept[: rng.randint(0, len(kept))] if rng.random() < 0.3 else kept)
    elif way == 7:
        header.sample_ids[:] = [numbers(rng) for _ in range(rng.choice((0, 1, 3, 4, 9999)))]
    else:
        header.mask[:] = [rng.random() < 0.5 for _ in range(rng.choice((0, 1, 3, 4, 9999)))]


@REPLIES.add(4)
def other_payload(rng: random.Random, session: Session) -> str:
    """Other bytes with their right checksum: lengths and offsets of byte strings among them."""
    messages = list(session.messages[:1])
    strange = rng.randrange(session.steps)
    sizes: list[int] = []
    payload = bytearray()
    for message in session.messages[1:]:
        answer = stream_pb2.StreamBatchesResponse.FromString(message)
        if answer.WhichOneof("event") == "header":
            sizes.append(answer.header.payload_size)
            messages.append(message)
            payload = bytearray()
            continue
        payload += answer.chunk.data
        if len(sizes) == strange + 1:
            data = bytes(payload)
            if session.spec.wire_spec[0].data_type == BYTES:
                data = _spoiled_table(rng, data, session.expected.batch_size + 1)
            else:
                data = mutated(rng, data)
            cut = pieces(rng, data, 4)
            messages += [b"".join(encode_chunk([piece])) for piece in cut]
        else:
            messages.append(message)
    return judged(session, lambda: replay(session.assembler(), messages), same=False)


def _spoiled_table(rng: random.Random, payload: bytes, count: int) -> bytes:
    table = np.frombuffer(payload[: 8 * count], "<u8").copy()
    body = payload[8 * count :]
    length = len(body)
    ends = [0, 1, length, length + 1, length // 2, 1 << 63, (1 << 63) - 1, (1 << 64) - 1]
    ends += [(1 << 64) - 2, 1 << 62, 3 << 62]
    for _ in range(rng.randint(1, 3)):
        table[rng.randrange(count)] = rng.choice([*ends, *ends, rng.randrange(1 << 64)])
    return table.tobytes() + body
