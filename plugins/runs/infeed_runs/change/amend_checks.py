"""Checks of an amendment: an epoch begins in its step, and its data continue the earlier data."""

from __future__ import annotations

from operator import attrgetter

from infeed.cursor import MAX_POSITION, Cursor
from infeed.run import Run
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Lineage, Segment
from infeed_runs.change.definitions import Opened
from infeed_server.order import RunOrder
from infeed_server.pipeline.lineage import order_of


def check_step(step: int, cursor: Cursor, last: Segment) -> int:
    """Returns the position at which a step begins. Raises `InvalidRequestError` for a step before
    the last segment or after the cursor."""
    check_integer("step", step, 0, MAX_POSITION)
    if step < last.step:
        raise InvalidRequestError(
            f"step {step} is before the last segment, which begins at step {last.step}; amend from "
            "a later step, or use a cursor from before that amendment",
            step=step,
        )
    if cursor.course is None and not cursor.segments:
        Run.of(cursor).part_of(step, last.global_stride)  # refuses one that does not give its steps
    start, course = last.position_of(step), cursor.last_course(last.global_stride)
    sizes = f"steps of {last.batch_size} samples on {last.world_size} ranks"
    if course.stride != last.global_stride or course.start != last.position_of(course.step):
        raise InvalidRequestError(
            f"the run has not made {sizes} since step {course.step}, position {course.start}; "
            "amend a cursor from before its sizes or passes changed"
        )
    if course.end is not None and start > course.end:
        raise InvalidRequestError(
            f"step {step} is after position {course.end}, where a pass dropped or padded its last "
            "samples; amend from an earlier step, or begin another run",
            step=step,
        )
    if step > (reached := course.steps_at(cursor.position)):
        raise InvalidRequestError(
            f"step {step} is after the cursor's step, which is {reached} with {last.batch_size} "
            f"samples on {last.world_size} ranks, so the steps between would be lost; amend from "
            "that step or an earlier one, or skip steps",
            step=step,
        )
    return start


def run_so_far(lineage: Lineage, old: Opened) -> RunOrder:
    """Returns the order of the segments so far. Raises `InvalidRequestError` if they do not fit
    the definition."""
    try:
        return order_of(lineage, old.removed, old.order(0))
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"the run's segments do not fit its definition: {error}; restore the cursor as it was "
            "saved"
        ) from error


_ORDER = attrgetter("seed", "shuffle", "sample_count", "removed", "shrinks")
"""What decides a segment's order."""


def check_epoch(step: int, start: int, run: RunOrder, segments: tuple[Segment, Segment]) -> None:
    """Raises `InvalidRequestError` unless an epoch begins in the step, or the new segment, the
    second one, has the order of the last one."""
    last, new = segments
    if _ORDER(new) == _ORDER(last):
        return
    epoch, offset, end = run.place(start)
    steps = [last.place_of(begin)[0] for begin in (start - offset, end)]
    if step not in steps:
        nearest = " or ".join(str(step) for step in steps if step >= last.step)
        raise InvalidRequestError(
            f"step {step} is within epoch {epoch}, but the order or the samples can only change "
            f"where an epoch begins; amend from step {nearest}",
            step=step,
        )


def skipped_positions(
    old: Opened, new: Opened, option: tuple[int, int] | None, place: tuple[int, int], stride: int
) -> int:
    """Returns the number of positions that the option or the new definition skips at a place, given
    as a step and its position. Raises `InvalidRequestError`."""
    step, start = place
    before, now = old.definition.skip, new.definition.skip
    later = now[len(before) :] if now[: len(before)] == before else now
    if option is None:
        taken = sum(b - a for a, b in before)
        for first, end in later:
            if (first - taken) * new.size != start:
                raise InvalidRequestError(
                    f"skip: {[first, end]} does not begin at step {step}, position {start}, and an "
                    "amended run can skip only from the amendment's own step; amend the cursor "
                    "saved at the range's first step, with skip or --skip"
                )
        return sum(b - a for a, b in later) * new.size
    if later:
        raise InvalidRequestError(
            f"both the definition, by {list(map(list, later))}, and the option skip steps; leave "
            "out one"
        )
    first, end = option
    if first != step:
        raise InvalidRequestError(
            f"skip {first}:{end} does not begin at step {step}; skip from there, or train up to "
            f"step {first} and amend the cursor saved there"
        )
    return (end - first) * stride


def check_data(old: Opened, new: Opened) -> None:
    """Raises `InvalidRequestError` for data that do not continue the run's."""
    ours, theirs = ([part.identity for part in one.parts] for one in (old, new))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            where = f"add[{number - 1}]" if number else "source"
            raise InvalidRequestError(
                f"{where}: its files or labels differ from the run's; leave it as it was, and give "
                "new and corrected samples as another source in add"
            )
    if len(ours) > len(theirs):
        raise InvalidRequestError(
            f"add: it has {len(theirs) - 1} sources but the run has {len(ours) - 1}: unseen "
            "samples would be lost; add those sources, or name their samples in remove"
        )
    if new.removed[: len(old.removed)] != old.removed:
        gone = [index for index in old.removed if index not in new.removed]
        problem = f"sample {gone[0]} is missing" if gone else "its order has changed"
        raise InvalidRequestError(
            f"remove: it does not begin with the {len(old.removed)} samples that the run has "
            f"removed: {problem}; only append samples"
        )
