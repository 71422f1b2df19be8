"""Checks of an amendment: a step in which an epoch begins, and data that continue those before."""

from __future__ import annotations

from infeed.cursor import MAX_POSITION, Cursor
from infeed.run import Run
from infeed.shared.arguments import check_integer
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Lineage, Segment
from infeed_runs.change.definitions import Opened
from infeed_server.order import RunOrder
from infeed_server.pipeline.lineage import order_of


def check_step(step: int, cursor: Cursor, last: Segment) -> int:
    """Returns the position at which a step begins. Raises `InvalidRequestError` for one before the
    last segment, or behind the cursor."""
    check_integer("step", step, 0, MAX_POSITION)
    if step < last.step:
        raise InvalidRequestError(
            f"step {step} lies before the last segment, which begins at step {last.step}; amend "
            "from there on, or take a cursor from before that amendment",
            step=step,
        )
    if cursor.course is None and not cursor.segments:
        Run.of(cursor).part_of(step, last.global_stride)  # refuses one that does not tell its steps
    start, course = last.position_of(step), cursor.last_course(last.global_stride)
    sizes = f"steps of {last.batch_size} samples on {last.world_size} ranks"
    if course.stride != last.global_stride or course.start != last.position_of(course.step):
        raise InvalidRequestError(
            f"the run has no {sizes} since step {course.step}, position {course.start}; amend a "
            "cursor from before its sizes or passes changed"
        )
    if course.end is not None and start > course.end:
        raise InvalidRequestError(
            f"step {step} lies behind position {course.end}, at which a pass left out or padded "
            "the samples that fill no step; amend from a step before, or begin another run",
            step=step,
        )
    if step > (reached := course.steps_at(cursor.position)):
        raise InvalidRequestError(
            f"step {step} lies beyond the cursor's, which is {reached} with {last.batch_size} "
            f"samples on {last.world_size} ranks: the steps between would be lost; amend from a "
            "step up to there, or skip steps",
            step=step,
        )
    return start


def run_so_far(lineage: Lineage, old: Opened) -> RunOrder:
    """Returns the order of the segments so far. Raises `InvalidRequestError` if they are others
    than the definition's."""
    try:
        return order_of(lineage, old.removed, old.order(0))
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"the run's segments do not fit its definition: {error}; restore the cursor as it was "
            "saved"
        ) from error


def check_epoch(step: int, start: int, run: RunOrder, last: Segment) -> None:
    """Raises `InvalidRequestError` unless an epoch begins in the step."""
    epoch, offset, end = run.place(start)
    steps = [last.place_of(begin)[0] for begin in (start - offset, end)]
    if step not in steps:
        nearest = " or ".join(str(step) for step in steps if step >= last.step)
        raise InvalidRequestError(
            f"step {step} lies within epoch {epoch}, and a run is amended where an epoch begins: "
            f"amend from step {nearest}",
            step=step,
        )


def skipped_positions(
    old: Opened, new: Opened, option: tuple[int, int] | None, place: tuple[int, int], stride: int
) -> int:
    """Returns the positions that the option or the new definition leaves out at a place, which is a
    step and its position. Raises `InvalidRequestError`."""
    step, start = place
    before, now = old.definition.skip, new.definition.skip
    later = now[len(before) :] if now[: len(before)] == before else now
    if option is None:
        taken = sum(b - a for a, b in before)
        for first, end in later:
            if (first - taken) * new.size != start:
                raise InvalidRequestError(
                    f"skip: {[first, end]} does not begin at step {step}, position {start}; in an "
                    "amended run, steps are skipped from the step of the amendment on: amend the "
                    "cursor of the range's first step, with skip or --skip"
                )
        return sum(b - a for a, b in later) * new.size
    if later:
        raise InvalidRequestError(
            f"both the definition, with {list(map(list, later))}, and the option skip steps; leave "
            "out one"
        )
    first, end = option
    if first != step:
        raise InvalidRequestError(
            f"skip {first}:{end} does not begin at step {step}; skip from there on, or train up to "
            f"step {first} and amend the cursor of that step"
        )
    return (end - first) * stride


def check_data(old: Opened, new: Opened) -> None:
    """Raises `InvalidRequestError` for data that do not continue those before."""
    ours, theirs = ([part.identity for part in one.parts] for one in (old, new))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            where = f"add[{number - 1}]" if number else "source"
            raise InvalidRequestError(
                f"{where}: its files or labels differ from the run's so far; leave it as it "
                "was, and give new and corrected samples as another source in add"
            )
    if len(ours) > len(theirs):
        raise InvalidRequestError(
            f"add: it has {len(theirs) - 1} sources, and the run {len(ours) - 1}; the unseen "
            "samples of the others would be lost; give them again, or name the samples in remove"
        )
    if new.removed[: len(old.removed)] != old.removed:
        gone = [index for index in old.removed if index not in new.removed]
        problem = f"sample {gone[0]} is missing" if gone else "its order has changed"
        raise InvalidRequestError(
            f"remove: it does not begin with the {len(old.removed)} samples that the run has "
            f"removed: {problem}; add samples at its end only"
        )
