"""Visits of samples: the positions of a run at which a sample is delivered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from infeed.shared.errors import InvalidRequestError, SampleNotFoundError
from infeed.v1 import feed_service_pb2 as messages
from infeed_runs.answer.description import to_text
from infeed_runs.answer.one_by_one import one_by_one
from infeed_runs.answer.sample_search import find_samples
from infeed_server.order import MAX_POSITION, RunOrder
from infeed_server.order.permutation import Positions
from infeed_server.order.run_order import Part
from infeed_server.pipeline.indexed_plan import IndexedPlan

Visits = list[tuple[int, int]]
"""Pairs of an epoch and a position."""

_MAX_FOUND, _MAX_FOUND_POSITIONS = 1000, 20_000
"""Limits of one answer: its samples, and roughly their positions in total."""

_MAX_SECONDS = 10.0
"""Time to find the positions of one answer; a limit on their number does not bound the work."""


def find_visits(
    plan: IndexedPlan, order: RunOrder, request: messages.FindSampleRequest
) -> messages.FindSampleResponse:
    """Returns the positions in the first epochs of the samples with an index, file or label."""
    sample, epochs, name = request.sample, request.epochs, plan.spec.name
    end = time.monotonic() + _MAX_SECONDS  # includes waiting for other calls
    limit = max(1, min(_MAX_FOUND, _MAX_FOUND_POSITIONS // epochs))
    found = [*islice(one_by_one(find_samples(plan, sample)), limit + 1)]
    if not found:
        raise SampleNotFoundError(
            f"{name!r} has no sample {sample!r}: give an index from 0 to {len(plan.source) - 1}, "
            "the end of a file's path, or label:VALUE",
            looked_for=sample,
        )
    answer = messages.FindSampleResponse(more=len(found) > limit)
    for index in found[:limit]:
        visits: Visits = []
        for some in one_by_one(visits_of(order, index, epochs)):
            visits += some
            if time.monotonic() > end:
                break
        if time.monotonic() > end:
            if not answer.samples:
                raise InvalidRequestError(
                    f"{name!r}: finding sample {index} in {epochs} epochs takes more than "
                    f"{_MAX_SECONDS:g} seconds; ask for fewer epochs",
                    looked_for=sample,
                )
            answer.more = True
            break
        answer.samples.add(
            sample_id=index,
            file=to_text(plan.source.provenance(index).file),
            epochs=[epoch for epoch, _ in visits],
            positions=[position for _, position in visits],
            is_removed=bool(np.isin(index, order.last.removed.ids)),
        )
    return answer


def visits_of(run: RunOrder, index: int, epochs: int) -> Iterator[Visits]:
    """Yields one list per epoch, up to `epochs`, of the slots that hold a sample, either in its own
    place or as the substitute of a removed one."""
    for part, begin, end in run.between(0, MAX_POSITION):
        visits = part.visits
        for epoch in range((begin + part.shift) // visits.length, epochs):
            first = epoch * visits.length - part.shift
            if first >= end:
                break
            offsets = _offsets(part, index, epoch)
            positions = np.sort(offsets) + first
            inside = (positions >= begin) & (positions < end)
            yield [(epoch, position) for position in positions[inside].tolist()]


def _offsets(part: Part, index: int, epoch: int) -> Positions:
    """Returns a sample's offsets in an epoch: its own slots, and those of removed samples that it
    replaces."""
    removed = part.order.removed
    wanted = np.union1d([index], np.concatenate([removed.ids, removed.bad]))
    offsets, ids, turns = part.visits.visits(epoch, wanted)
    found: Positions = offsets[part.order.with_substitutes(ids, turns).index == index]
    return found
