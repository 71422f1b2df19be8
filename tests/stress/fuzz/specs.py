"""Client cases with invalid pipelines and streams from a server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.stress.fuzz.calls import odd_number, odd_string
from tests.stress.fuzz.case import mutate
from tests.stress.fuzz.feeds import ScriptedTransport, read_feed, zero_batches
from tests.stress.fuzz.replies import REPLIES, WrongResultError
from tests.stress.fuzz.sessions import Session

from infeed.shared.errors import (
    InfeedError,
    PipelineNotFoundError,
    ServerUnavailableError,
    StallError,
)
from infeed.shared.finish import finished_spec
from infeed.shared.spec import PipelineSpec
from infeed.v1 import spec_pb2, stream_pb2

_FLOATS = [0.0, -0.0, 1.0, 255.0, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308]


def _serve(message: spec_pb2.Pipeline) -> ScriptedTransport:
    def respond(requests: Iterator[Any]) -> Iterator[bytes]:
        return zero_batches(PipelineSpec.from_proto(message), next(requests).open, requests)

    return ScriptedTransport(message, respond)


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
    """Plays a pipeline description with one or two changes."""
    message = session.spec.to_proto()
    for _ in range(rng.randint(1, 2)):
        _corrupt(rng, message)
    return read_feed(_serve(message), message.name, **_options(rng))


def _corrupt(rng: random.Random, message: spec_pb2.Pipeline) -> None:
    fields = rng.choice((message.wire_spec, message.element_spec))
    field = rng.choice(fields) if fields else spec_pb2.FieldSpec()
    variant = rng.randrange(11)
    if variant == 0:
        field.name = rng.choice((odd_string(rng), *(other.name for other in fields), ""))
    elif variant == 1:
        field.data_type = rng.choice((rng.randrange(16), odd_number(rng, 32)))
    elif variant == 2:
        field.shape.extend(rng.choice(([odd_number(rng)], [0], [1] * 40, [1 << 40, 1 << 40], [-1])))
    elif variant == 3:
        fields.add().CopyFrom(field)
    elif variant == 4:
        del fields[:]
    elif variant in {5, 6}:
        names = ("sample_count", "batch_size", "seed", "batch_stride")
        setattr(message, rng.choice(names), rng.choice((odd_number(rng), 0, 1, -1)))
    elif variant == 7:
        names = ("remainder", "on_error")
        setattr(message, rng.choice(names), rng.randrange(-1, 5))
        if rng.random() < 0.5:
            message.guarantee.order = rng.randrange(4)
            message.guarantee.resume = rng.randrange(5)
    elif variant == 8:
        setattr(message, rng.choice(("name", "fingerprint", "server_version")), odd_string(rng))
    else:
        _corrupt_finish(rng, message)


def _corrupt_finish(rng: random.Random, message: spec_pb2.Pipeline) -> None:
    names = [field.name for field in message.wire_spec] + [odd_string(rng)[:20]]
    added = message.finish_transforms.add(field=rng.choice(names))
    kind = rng.choice((*range(15), 99))
    variant = rng.randrange(4)
    if variant == 0:
        added.cast.data_type = kind
    elif variant == 1:
        added.one_hot.depth = rng.choice((odd_number(rng), 0, 3, -1, 1 << 40))
        added.one_hot.data_type = kind
        added.one_hot.on_value = rng.choice(_FLOATS)
    elif variant == 2:
        added.normalize.data_type = rng.choice((kind, 11))
        added.normalize.scale = rng.choice(_FLOATS)
        added.normalize.mean.extend(rng.choices(_FLOATS, k=rng.randrange(9)))
        added.normalize.std.extend(rng.choices(_FLOATS, k=rng.randrange(9)))
    if rng.random() < 0.7:  # with the transform's own output spec, so that the transform runs
        try:
            spec = PipelineSpec.from_proto(message)
            finished = finished_spec(spec.wire_spec, spec.finish_transforms)
        except InfeedError:
            return
        del message.element_spec[:]
        try:
            message.element_spec.extend(field.to_proto() for field in finished)
        except (ValueError, OverflowError):
            del message.element_spec[:]


@REPLIES.add(1)
def mutated_pipeline(rng: random.Random, session: Session) -> str:
    data = mutate(rng, session.spec.to_proto().SerializeToString())
    try:
        message = spec_pb2.Pipeline.FromString(data)
    except Exception:  # noqa: BLE001 - the transport reports parse errors; other cases test that
        return "no message"
    return read_feed(_serve(message), message.name, **_options(rng))


@REPLIES.add(2)
def odd_course(rng: random.Random, session: Session) -> str:
    """Plays a valid stream with an invalid message or an error at some step."""
    message = session.spec.to_proto()
    if rng.random() < 0.5:
        message.ClearField("sample_count")
    options = _options(rng) | {"finish": "trainer"}
    step = rng.randrange(3)
    end = stream_pb2.EndOfData(request_id=step, position_count=odd_number(rng))
    injected = rng.choice(
        [
            stream_pb2.StreamBatchesResponse(end=end).SerializeToString(),
            StallError("from the server"),
            PipelineNotFoundError("removed"),
            ServerUnavailableError("unreachable"),
            b"\xff",
        ]
    )

    def respond(requests: Iterator[Any]) -> Iterator[bytes]:
        spec = PipelineSpec.from_proto(message)
        messages = zero_batches(spec, next(requests).open, requests)
        for number, valid in enumerate(messages):
            if number > 2 * step:
                if isinstance(injected, Exception):
                    raise injected
                yield injected
            yield valid

    outcome = read_feed(ScriptedTransport(message, respond), message.name, **options)
    ended = isinstance(injected, bytes) and injected != b"\xff" and outcome == "ended"
    if ended and options["epochs"] is None:
        raise WrongResultError("an endless feed ended")
    return outcome
