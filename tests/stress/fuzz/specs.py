"""Feeds of pipelines that make no sense, from a server that serves them all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.stress.fuzz.calls import numbers, strings
from tests.stress.fuzz.case import mutated
from tests.stress.fuzz.feeds import Told, read, zeros
from tests.stress.fuzz.replies import REPLIES, WrongError
from tests.stress.fuzz.sessions import Session

import infeed
from infeed.errors import (
    InfeedError,
    PipelineNotFoundError,
    ServerUnavailableError,
    StallError,
)
from infeed.spec import PipelineSpec
from infeed.v1 import spec_pb2, stream_pb2

_FLOATS = [0.0, -0.0, 1.0, 255.0, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308]


def _serve(message: spec_pb2.Pipeline) -> Told:
    def answer(requests: Iterator[Any]) -> Iterator[bytes]:
        return zeros(PipelineSpec.from_proto(message), next(requests).open, requests)

    return Told(message, answer)


def _options(rng: random.Random) -> dict[str, Any]:
    return {
        "batch_size": rng.choice((None, None, 1, 3)),
        "epochs": rng.choice((None, 1, 2)),
        "finish": rng.choice(("trainer", "trainer", "server")),
        "remainder": rng.choice((None, "drop", "pad")),
        "prefetch_bytes": 1 << 20,
    }


@REPLIES.add(4)
def odd_pipeline(rng: random.Random, session: Session) -> str:
    """Of a good description, one or two things are changed."""
    message = session.spec.to_proto()
    for _ in range(rng.randint(1, 2)):
        _spoil(rng, message)
    return read(_serve(message), message.name, **_options(rng))


def _spoil(rng: random.Random, message: spec_pb2.Pipeline) -> None:
    which = rng.choice((message.wire_spec, message.element_spec))
    field = rng.choice(which) if which else spec_pb2.FieldSpec()
    way = rng.randrange(11)
    if way == 0:
        field.name = rng.choice((strings(rng), *(one.name for one in which), ""))
    elif way == 1:
        field.data_type = rng.choice((rng.randrange(16), numbers(rng, 32)))
    elif way == 2:
        field.shape.extend(rng.choice(([numbers(rng)], [0], [1] * 40, [1 << 40, 1 << 40], [-1])))
    elif way == 3:
        which.add().CopyFrom(field)
    elif way == 4:
        del which[:]
    elif way in {5, 6}:
        names = ("sample_count", "batch_size", "seed", "batch_stride")
        setattr(message, rng.choice(names), rng.choice((numbers(rng), 0, 1, -1)))
    elif way == 7:
        names = ("remainder", "on_error")
        setattr(message, rng.choice(names), rng.randrange(-1, 5))
        if rng.random() < 0.5:
            message.guarantee.order = rng.randrange(4)
            message.guarantee.resume = rng.randrange(5)
    elif way == 8:
        setattr(message, rng.choice(("name", "fingerprint", "server_version")), strings(rng))
    else:
        _spoil_finish(rng, message)


def _spoil_finish(rng: random.Random, message: spec_pb2.Pipeline) -> None:
    names = [field.name for field in message.wire_spec] + [strings(rng)[:20]]
    added = message.finish_transforms.add(field=rng.choice(names))
    kind = rng.choice((*range(15), 99))
    way = rng.randrange(4)
    if way == 0:
        added.cast.data_type = kind
    elif way == 1:
        added.one_hot.depth = rng.choice((numbers(rng), 0, 3, -1, 1 << 40))
        added.one_hot.data_type = kind
        added.one_hot.on_value = rng.choice(_FLOATS)
    elif way == 2:
        added.normalize.data_type = rng.choice((kind, 11))
        added.normalize.scale = rng.choice(_FLOATS)
        added.normalize.mean.extend(rng.choices(_FLOATS, k=rng.randrange(9)))
        added.normalize.std.extend(rng.choices(_FLOATS, k=rng.randrange(9)))
    if rng.random() < 0.7:  # told as the transform would have it, so that it is run
        spec = PipelineSpec.from_proto
        try:
            good = spec(message)
            made = infeed.finish.finished_spec(good.wire_spec, good.finish_transforms)
        except InfeedError:
            return
        del message.element_spec[:]
        try:
            message.element_spec.extend(field.to_proto() for field in made)
        except (ValueError, OverflowError):
            del message.element_spec[:]


@REPLIES.add(1)
def mutated_pipeline(rng: random.Random, session: Session) -> str:
    data = mutated(rng, session.spec.to_proto().SerializeToString())
    try:
        message = spec_pb2.Pipeline.FromString(data)
    except Exception:  # noqa: BLE001 - the transport's to tell, and other cases have it
        return "no message"
    return read(_serve(message), message.name, **_options(rng))


@REPLIES.add(2)
def odd_course(rng: random.Random, session: Session) -> str:
    """A good stream in which something comes that cannot be, or that ends it in an odd way."""
    message = session.spec.to_proto()
    if rng.random() < 0.5:
        message.ClearField("sample_count")
    options = _options(rng) | {"finish": "trainer"}
    at = rng.randrange(3)
    end = stream_pb2.EndOfData(request_id=at, position_count=numbers(rng))
    strange = rng.choice(
        [
            stream_pb2.StreamBatchesResponse(end=end).SerializeToString(),
            StallError("a server's own"),
            PipelineNotFoundError("gone"),
            ServerUnavailableError("away"),
            b"\xff",
        ]
    )

    def answer(requests: Iterator[Any]) -> Iterator[bytes]:
        spec = PipelineSpec.from_proto(message)
        good = zeros(spec, next(requests).open, requests)
        for number, one in enumerate(good):
            if number > 2 * at:
                if isinstance(strange, Exception):
                    raise strange
                yield strange
            yield one

    how = read(Told(message, answer), message.name, **options)
    ends = isinstance(strange, bytes) and strange != b"\xff" and how == "ended"
    if ends and options["epochs"] is None:
        raise WrongError("an endless feed ended")
    return how
