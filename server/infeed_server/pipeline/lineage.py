"""The order of a run whose definition has changed: its segments, under the current definition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.segment import Lineage, Segment
from infeed_server.order import NOTHING, Removed, RunOrder, SampleOrder

MAX_STABLE = 1 << 28
"""Maximum samples of a stable order, which takes memory for each."""


def run_order(
    spec: PipelineSpec, order: SampleOrder, removed: tuple[int, ...], lineage: Lineage
) -> RunOrder:
    """Returns the order of a run. The last segment has `order`, the pipeline's own; earlier
    segments have a subset of its samples, and removed only the first of those that it removes.
    Raises `InvalidRequestError` for segments that the pipeline cannot have."""
    try:
        # Checked first: an order of more samples than the pipeline has could take any amount of
        # memory.
        if (most := max(segment.sample_count for segment in lineage)) > order.count:
            raise ValueError(f"a segment has {most} samples, but the pipeline {order.count}")
        run, last = order_of(lineage, removed, order), lineage[-1]
        expected = (spec.fingerprint, order.seed, order.count, order.name)
        found = (last.fingerprint, last.seed, last.sample_count, last.shuffle)
        if found != expected or last.removed != len(removed):
            raise ValueError(f"its last segment has {found}, but the pipeline has {expected}")
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"the run does not fit pipeline {spec.name!r}: {error}; see infeed amend",
            pipeline=spec.name,
        ) from error
    return run


def order_of(lineage: Lineage, removed: tuple[int, ...], own: SampleOrder) -> RunOrder:
    """Returns the order of segments, rebuilt from what each changes and from the definition's
    `own`. Raises `ValueError` if the segments do not fit together."""
    run: RunOrder | None = None
    for segment in lineage:
        order, start = _segment_order(segment, removed, own), segment.start
        if run is None:
            run, start = RunOrder.of(order), 0
        else:
            skipped = run.position(segment.epoch, segment.offset) - start
            run = run.extended(start, order, max(0, skipped))
        begins = (segment.start, segment.epoch, segment.offset, segment.epoch_end)
        if (start, *run.place(start)) != begins:
            problem = f"the segment of step {segment.step} does not continue the one before it"
            raise ValueError(problem)
    assert run is not None  # a lineage is not empty
    return run


def _segment_order(segment: Segment, removed: tuple[int, ...], own: SampleOrder) -> SampleOrder:
    """Returns the order of a segment's whole epochs. Raises `ValueError`."""
    order = own.named(segment.shuffle)
    if segment.sample_count < 1 or segment.removed > len(removed):
        raise ValueError(f"a segment has {segment.sample_count} samples")
    if order.mode == "stable" and segment.sample_count > MAX_STABLE:
        raise ValueError(f"a segment has a stable order of more than {MAX_STABLE} samples")
    gone = removed_ids(removed[: segment.removed], segment.shrinks)
    return replace(order, count=segment.sample_count, seed=segment.seed, removed=gone)


@lru_cache(maxsize=16)
def removed_ids(removed: tuple[int, ...], shrinks: bool) -> Removed:
    """Returns removed samples as orders hold them: the same object for the same samples."""
    return Removed(np.array(sorted(removed), np.int64), shrinks) if removed else NOTHING


def skip_lineage(
    order: SampleOrder, ranges: Iterable[tuple[int, int]], size: int, **names: str
) -> Lineage:
    """Returns the segments of a run that skips ranges of steps of `size` samples. The ranges number
    steps as if none were skipped; the run's own numbers continue after each."""
    run, segments, skipped = RunOrder.of(order), [], 0
    for first, end in ((0, 0), *ranges):
        start, length = first * size - skipped, (end - first) * size
        if length:
            run = run.extended(start, order, length)
        skipped += length
        sizes = {"batch_size": size, "world_size": 1}
        segments.append(segment_of(run, start, start // size, **sizes, **names))
    return tuple(segments)


def segment_of(run: RunOrder, start: int, step: int, **others: Any) -> Segment:
    """Returns the last segment of a run, with its other values from `others`."""
    order, (epoch, offset, epoch_end) = run.last, run.place(start)
    return Segment(
        step=step,
        start=start,
        epoch=epoch,
        offset=offset,
        epoch_end=epoch_end,
        seed=order.seed,
        sample_count=order.count,
        shuffle=order.name,
        removed=len(order.removed.ids),
        shrinks=order.removed.shrinks,
        **others,
    )
