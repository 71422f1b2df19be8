"""The calls DescribeSlots and FindSample, added to a server by the entry points `infeed.rpc`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from infeed.shared.errors import SampleError
from infeed.v1 import feed_service_pb2 as messages
from infeed_runs.answer.description import Describer
from infeed_runs.answer.one_by_one import one_by_one
from infeed_runs.answer.visits import find_visits
from infeed_runs.look.slots import MAX_DRAWN_SLOTS, MAX_EPOCHS, MAX_SLOTS
from infeed_server.engines.base import Engine
from infeed_server.engines.capabilities import random_access
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.order import MAX_POSITION, RunOrder
from infeed_server.serving import request_checks
from infeed_server.serving.request_checks import require_range

FindEngine = Callable[[str], Engine]
"""A function that returns the engine of a pipeline if the caller may read it."""

_MAX_SAMPLE_CHARS = 4096
"""The longest path on Linux."""


def describe_slots(
    find: FindEngine, request: messages.DescribeSlotsRequest, is_active: Callable[[], bool]
) -> messages.DescribeSlotsResponse:
    """Describes positions of a run. Raises `InvalidRequestError` and `FingerprintError`."""
    engine, order = _run(find, request.run)
    require_range("start", request.start, 0, MAX_POSITION)
    require_range("count", request.count, 1, MAX_DRAWN_SLOTS if request.draws else MAX_SLOTS)
    positions = range(request.start, request.start + request.count)
    slots = Describer(engine, order).describe(positions, draws=request.draws)
    active = takewhile(lambda _: is_active(), one_by_one(slots))
    return messages.DescribeSlotsResponse(slots=active)


def find_sample(
    find: FindEngine, request: messages.FindSampleRequest, _: Callable[[], bool]
) -> messages.FindSampleResponse:
    """Returns the positions of a sample in a run. Raises the errors of `describe_slots`, and
    `SampleNotFoundError`."""
    engine, order = _run(find, request.run)
    require_range("epochs", request.epochs, 1, MAX_EPOCHS)
    require_range("length of sample", len(request.sample), 1, _MAX_SAMPLE_CHARS)
    return find_visits(engine.plan, order, request)


def _run(find: FindEngine, run: messages.Run) -> tuple[IndexedEngine, RunOrder]:
    """Returns an engine and the order in which it delivers samples, with substitutes for those
    known to be bad."""
    engine = find(run.pipeline)
    spec = engine.spec
    request_checks.check_fingerprint(spec, run.fingerprint)
    seed = run.seed if run.HasField("seed") else None
    order = random_access(engine).order(*request_checks.parse_run(spec, seed, run.lineage))
    assert isinstance(engine, IndexedEngine)  # the only engine with random access
    bad = engine.known_bad()
    if not bad.size or spec.on_error == "mask":
        return engine, order
    if 2 * bad.size > (count := order.last.count):
        raise SampleError(
            f"{spec.name!r}: {bad.size} of {count} samples are bad, too many to follow their "
            "substitutes; repair the files listed in the quarantine log"
        )
    return engine, order.without(bad)
