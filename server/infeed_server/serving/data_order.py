"""Answers to questions about the order of a run: what positions have, and where a sample is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from infeed.shared.errors import InvalidRequestError
from infeed.v1 import feed_service_pb2 as messages
from infeed_server.engines.base import Engine, RunKey
from infeed_server.engines.capabilities import random_access
from infeed_server.serving import request_checks

_MAX_SLOTS, _MAX_DRAWN_SLOTS = 4096, 256
"""Positions of one answer; fewer where each sample is read and transformed."""

_MAX_EPOCHS = 10_000

_MAX_SAMPLE_CHARS = 4096
"""As of a path."""

_MAX_POSITION = 1 << 62


def describe_slots(
    engine: Engine,
    request: messages.DescribeSlotsRequest,
    is_active: Callable[[], bool] = lambda: True,
) -> messages.DescribeSlotsResponse:
    """Returns what positions of a run have. Raises `InvalidRequestError`, `FingerprintError`."""
    run = _run(engine, request.run)
    limit = _MAX_DRAWN_SLOTS if request.draws else _MAX_SLOTS
    _check("start", request.start, 0, _MAX_POSITION)
    _check("count", request.count, 1, limit)
    positions = range(request.start, request.start + request.count)
    slots = random_access(engine).describe_slots(run, positions, request.draws)
    return messages.DescribeSlotsResponse(slots=takewhile(lambda _: is_active(), slots))


def find_sample(engine: Engine, request: messages.FindSampleRequest) -> messages.FindSampleResponse:
    """Returns where a sample is in a run. Raises as `describe_slots` does, and
    `SampleNotFoundError`."""
    run = _run(engine, request.run)
    _check("epochs", request.epochs, 1, _MAX_EPOCHS)
    _check("the length of sample", len(request.sample), 1, _MAX_SAMPLE_CHARS)
    return random_access(engine).find_sample(run, request.sample, request.epochs)


def _run(engine: Engine, run: messages.Run) -> RunKey:
    request_checks.check_fingerprint(engine.spec, run.fingerprint)
    seed = run.seed if run.HasField("seed") else engine.spec.seed
    request_checks.check_seed_and_epochs(seed, 0)
    return seed, request_checks.parse_lineage(run.lineage)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} {value} is out of range: it is {low} to {high}")
