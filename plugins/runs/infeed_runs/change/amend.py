"""Amendments of runs: a new last segment, and what it changes.

An amendment that cannot be exact is refused: it would lose, repeat or change samples of past steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.cursor import MAX_POSITION, MAX_WORLD_SIZE, Cursor
from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE
from infeed.shared.spec.segment import MAX_SEGMENTS, Segment
from infeed_runs.change.amend_checks import (
    check_data,
    check_epoch,
    check_step,
    run_so_far,
    skipped_positions,
)
from infeed_runs.change.changes import Change, definition_changes, segment_changes
from infeed_runs.change.definitions import Definitions, split_name
from infeed_runs.run_file import load_run
from infeed_server.order import MAX_SEED, RunOrder
from infeed_server.pipeline.lineage import segment_of
from infeed_server.pipeline.load import Pipelines


@dataclass(frozen=True)
class AmendOptions:
    """Changes of a new segment besides its definition; None keeps a value."""

    batch_size: int | None = None
    world_size: int | None = None
    seed: int | None = None
    skip: tuple[int, int] | None = None
    """Steps to leave out, (first, end); the first must be the segment's step."""

    def __post_init__(self) -> None:
        limits = {"batch_size": MAX_BATCH_SIZE, "world_size": MAX_WORLD_SIZE}
        for name, limit in limits.items():
            if (value := getattr(self, name)) is not None:
                check_integer(name, value, 1, limit)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, MAX_SEED)
        if self.skip is not None:
            check_integer("skip", self.skip[1], self.skip[0] + 1, MAX_POSITION)


@dataclass(frozen=True)
class Amendment:
    """A run with a new segment. `text` states what it changes, one change per line."""

    cursor: Cursor
    changes: tuple[Change, ...]
    text: tuple[str, ...]
    skipped: tuple[int, ...] = ()
    """The ids of the samples in the skipped steps."""

    def to_json(self) -> dict[str, Any]:
        """Returns the state for `infeed.connect`."""
        return self.cursor.to_json()


def amend(
    run: str | Mapping[str, Any] | Cursor,
    step: int,
    definition: str | Pipelines,
    *,
    pipeline: str | None = None,
    was: str | Pipelines | None = None,
    options: AmendOptions | None = None,
) -> Amendment:
    """Returns a run that continues from a step with another definition, seed or batch size.

    run         a cursor: the result of `Feed.state()`, or the name of its JSON file
    step        the first step of the new segment, usually the cursor's
    definition  `FILE.yaml[:PIPELINE]`, `module:attr`, or pipelines by name
    pipeline    the pipeline's name; by default the run's, or the only one
    was         the place of the old definition, if it is not in `definition`
    options     other changes

    Writes nothing. Raises `InvalidRequestError` for a change that would lose or repeat samples.
    """
    cursor, options = _cursor(run), options or AmendOptions()
    if isinstance(definition, str):
        definition, name, _ = split_name(definition)
        pipeline = pipeline or name
    with Definitions(definition, *([] if was is None else [was])) as definitions:
        new = definitions.open(pipeline, cursor.pipeline)
        old = definitions.find(cursor.fingerprint, cursor.pipeline)
        check_data(old, new)
        lineage = cursor.segments or old.first_segments(cursor)
        last = lineage[-1]
        start = check_step(step, cursor, last)
        lineage = tuple(one for one in lineage if one.start <= start)
        before = run_so_far(lineage, old)
        skipped = skipped_positions(old, new, options.skip, (step, start), last.global_stride)
        order = new.order(last.seed if options.seed is None else options.seed)
        try:
            after = before.extended(start, order, skipped)
        except ValueError as error:
            raise InvalidRequestError(f"the run cannot continue like this: {error}") from error
        segment = segment_of(
            after,
            start,
            step,
            pipeline=new.name,
            fingerprint=new.fingerprint,
            batch_size=options.batch_size or last.batch_size,
            world_size=options.world_size or last.world_size,
        )
        check_epoch(step, start, before, (last, segment))
        if len(lineage) >= MAX_SEGMENTS:
            raise InvalidRequestError(
                f"the run would have {len(lineage) + 1} segments, of at most {MAX_SEGMENTS}; "
                "begin another run at the end of an epoch"
            )
        outputs = [field.name for field in definitions.plan(new).spec.element_spec]
        changes = [*definition_changes(old, new, outputs), *segment_changes(last, segment)]
    if not changes and not skipped:
        raise InvalidRequestError(
            f"step {step}: the definition, seed and sizes are already the run's; change one"
        )
    ids = np.unique(before.slots(start, skipped).index) if skipped else np.empty(0, np.int64)
    names = ("pipeline", "fingerprint", "seed", "batch_size", "world_size")
    values: dict[str, Any] = {name: getattr(segment, name) for name in names}
    state = replace(cursor, position=start, segments=(*lineage, segment), course=None, **values)
    text = (*map(str, changes), *_course(segment, after, len(ids)))
    return Amendment(state, tuple(changes), text, tuple(ids.tolist()))


def _course(segment: Segment, run: RunOrder, skipped: int) -> list[str]:
    """Returns lines that state how the run continues."""
    step, epoch = segment.step, segment.epoch
    kept = f"steps 0 to {step - 1} stay as they were" if step else "no step was taken"
    lines = [f"{kept}; step {step} begins at position {segment.start}"]
    if skipped:
        lines.append(
            f"{skipped} positions over all ranks are skipped; their samples return in the next "
            "epoch, unless the definition's remove names them"
        )
    how = f"epoch {epoch} begins here"
    if segment.offset:
        left = segment.epoch_end - segment.start
        how = f"epoch {epoch} continues in its order, with {left} samples"
    ending = f"{how}; it ends at {segment.epoch_end}"
    return [*lines, ending, f"later epochs have {run.last.length} samples"]


def _cursor(run: str | Mapping[str, Any] | Cursor) -> Cursor:
    """Returns the cursor of a run. Raises `CursorError`."""
    if not isinstance(run, str):
        return Cursor.from_json(run)
    found = load_run(run).cursor
    if found is None:
        raise CursorError(
            f"{run!r} is a pipeline, which has no steps yet; give a file with the result of "
            "Feed.state()"
        )
    return found
