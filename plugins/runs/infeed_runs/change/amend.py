"""Amending of a run: the segment behind its last one, and what it changes.

What cannot be exact is refused: a sample that is lost, repeated or changed in the steps so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.cursor import MAX_POSITION, MAX_WORLD_SIZE, Cursor
from infeed.run import load_run
from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE
from infeed.shared.spec.segment import MAX_SEGMENTS, Lineage, Segment
from infeed_runs.change.changes import Change, definition_changes
from infeed_runs.change.definitions import Definitions, Opened, split_name
from infeed_server.order import MAX_SEED
from infeed_server.order.run_order import RunOrder, extend
from infeed_server.pipeline.lineage import segment_of, segment_order
from infeed_server.pipeline.load import Pipelines


@dataclass(frozen=True)
class AmendOptions:
    """What a new segment changes beside its definition. None: as before."""

    batch_size: int | None = None
    world_size: int | None = None
    seed: int | None = None
    skip: tuple[int, int] | None = None
    """Steps to leave out, (first, end): the first is the step of the segment."""

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
    """A run with a new segment. `text` is what it changes, a statement in a line."""

    cursor: Cursor
    changes: tuple[Change, ...]
    text: tuple[str, ...]
    skipped: tuple[int, ...] = ()
    """The ids of the samples in the steps that are left out."""

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
    """Returns a run that goes on from a step with another definition, seed or batch size.

    run         a cursor: what `Feed.state()` returned, or the name of its JSON file
    step        the first step of the new segment, usually the cursor's
    definition  `FILE.yaml[:PIPELINE]`, `module:attr`, or pipelines by name
    pipeline    the pipeline's name; by default the run's, or the only one
    was         where the old definition is, if it is not in `definition`
    options     other changes

    Nothing is written. Raises `InvalidRequestError` for a change that would lose or repeat samples.
    """
    cursor = _cursor(run)
    if isinstance(definition, str):
        definition, name, _ = split_name(definition)
        pipeline = pipeline or name
    with Definitions(definition, *([] if was is None else [was])) as definitions:
        new = definitions.open(pipeline, cursor.pipeline)
        old = definitions.find(cursor.fingerprint, cursor.pipeline)
        options = options or AmendOptions()
        lineage = cursor.segments or _first_segments(cursor, old, definitions)
        outputs = [field.name for field in definitions.plan(new).spec.element_spec]
        cursor = replace(cursor, segments=lineage)
        return _Amending(cursor, step, old, new, options).amend(outputs)


class _Amending:
    """The arithmetic of an amendment: `part` is the last segment of the run so far, up to
    `start`."""

    def __init__(
        self, cursor: Cursor, step: int, old: Opened, new: Opened, options: AmendOptions
    ) -> None:
        self.cursor, self.old, self.new, self.options = cursor, old, new, options
        self.step = check_integer("step", step, 0, MAX_POSITION)
        _check_data(old, new)
        self.lineage = cursor.segments
        last = self.lineage[-1]
        self.start = last.start + (step - last.step) * last.global_stride
        self._check_step(last)
        self.lineage = tuple(one for one in self.lineage if one.start <= self.start)
        try:
            orders = [segment_order(segment, old.removed) for segment in self.lineage]
            self.run = RunOrder(self.lineage, orders)
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(
                f"the run's segments do not fit its definition: {error}; restore the cursor as it "
                "was saved"
            ) from error
        self.part = self.run.parts[-1]
        self._check_epoch(last)
        size = options.batch_size or last.batch_size
        self.batch_size, self.world_size = size, options.world_size or last.world_size
        self.order = new.order(last.seed if options.seed is None else options.seed)

    def amend(self, outputs: list[str]) -> Amendment:
        skipped, ids = self._skipped(), np.empty(0, np.int64)
        if skipped:
            ids = np.unique(self.run.slots(self.start, skipped).index)
        try:
            segment = extend(self.part, self.start, self.order, self._segment, skipped)
        except ValueError as error:
            raise InvalidRequestError(f"the run cannot go on so: {error}") from error
        segments = (*self.lineage, segment)
        if len(segments) > MAX_SEGMENTS:
            raise InvalidRequestError(
                f"the run would have {len(segments)} segments; at most {MAX_SEGMENTS} are allowed; "
                "begin another run at the end of an epoch"
            )
        changes = self._changes(outputs)
        if not changes and not skipped:
            raise InvalidRequestError(
                f"step {self.step}: the definition, the seed and the sizes are the run's; "
                "change one"
            )
        state = replace(
            self.cursor,
            pipeline=segment.pipeline,
            fingerprint=segment.fingerprint,
            seed=segment.seed,
            position=self.start,
            segments=segments,
            batch_size=segment.batch_size,
            world_size=segment.world_size,
        )
        text = (*map(str, changes), *self._course(segment, len(ids)))
        return Amendment(state, tuple(changes), text, tuple(ids.tolist()))

    def _check_step(self, last: Segment) -> None:
        if self.step < last.step:
            raise InvalidRequestError(
                f"step {self.step} lies before the last segment, which begins at step {last.step}; "
                "amend from there on, or take a cursor from before that amendment",
                step=self.step,
            )
        position = self.cursor.position
        if (position - last.start) % last.global_stride:
            raise InvalidRequestError(
                f"the cursor's position {position} is no multiple of the run's steps of "
                f"{last.batch_size} samples on {last.world_size} ranks, from position {last.start} "
                "on; amend a cursor from before its sizes changed"
            )
        reached = last.step + (position - last.start) // last.global_stride
        if self.step > reached:
            raise InvalidRequestError(
                f"step {self.step} lies beyond the cursor's, which is {reached} with "
                f"{last.batch_size} samples on {last.world_size} ranks: the steps between would "
                "be lost; amend from a step up to there, or skip steps",
                step=self.step,
            )

    def _check_epoch(self, last: Segment) -> None:
        """Raises `InvalidRequestError` unless an epoch begins in the step."""
        part, first = self.part, np.zeros(1, np.int64)
        epoch = int(part.locate(first + self.start)[0][0])
        begins = [int(part.position(number, first)[0]) for number in (epoch, epoch + 1)]
        steps = [last.step + (begin - last.start) // last.global_stride for begin in begins]
        if self.step not in steps:
            nearest = " or ".join(str(step) for step in steps if step >= last.step)
            raise InvalidRequestError(
                f"step {self.step} lies within epoch {epoch}, and a run is amended where an epoch "
                f"begins: amend from step {nearest}",
                step=self.step,
            )

    def _skipped(self) -> int:
        """Returns the positions that are left out at the start. Raises `InvalidRequestError`."""
        old, new = self.old.definition.skip, self.new.definition.skip
        taken = sum(b - a for a, b in old)
        size = self.new.definition.batch.size if self.new.definition.batch else 1
        later = new[len(old) :] if new[: len(old)] == old else new
        at_start = [(a, b) for a, b in later if (a - taken) * size == self.start]
        if self.options.skip is None:
            if len(later) > len(at_start):
                other = next(one for one in later if one not in at_start)
                raise InvalidRequestError(
                    f"skip: {list(other)} does not begin at step {self.step}, position "
                    f"{self.start}; in an amended run, steps are skipped from the step of the "
                    "amendment on: amend the cursor of the range's first step, with skip or --skip"
                )
            return sum(b - a for a, b in at_start) * size
        if later:
            raise InvalidRequestError(
                f"both the definition, with {list(map(list, later))}, and the option skip steps; "
                "leave out one"
            )
        first, end = self.options.skip
        if first != self.step:
            raise InvalidRequestError(
                f"skip {first}:{end} does not begin at step {self.step}; skip from there on, or "
                f"train up to step {first} and amend the cursor of that step"
            )
        return (end - first) * self.lineage[-1].global_stride

    def _segment(self, **place: Any) -> Segment:
        return segment_of(
            self.order,
            step=self.step,
            pipeline=self.new.name,
            fingerprint=self.new.fingerprint,
            batch_size=self.batch_size,
            world_size=self.world_size,
            **place,
        )

    def _changes(self, outputs: list[str]) -> list[Change]:
        last = self.lineage[-1]
        pairs = {
            "seed": (last.seed, self.order.seed),
            "batch size": (last.batch_size, self.batch_size),
            "world size": (last.world_size, self.world_size),
        }
        changes = definition_changes(self.old, self.new, outputs)
        return changes + [Change(k, str(a), str(b)) for k, (a, b) in pairs.items() if a != b]

    def _course(self, segment: Segment, skipped: int) -> list[str]:
        """Returns how the run goes on, as statements."""
        kept = f"steps 0 to {self.step - 1} stay as they were" if self.step else "no step was taken"
        lines = [f"{kept}; step {self.step} begins at position {self.start}"]
        if skipped:
            lines.append(
                f"{skipped} positions are skipped, of all ranks; their samples come again in the "
                "next epoch, unless the definition's remove names them"
            )
        how = f"epoch {segment.epoch} begins here"
        if segment.offset:
            left = segment.epoch_end - self.start
            how = f"epoch {segment.epoch} goes on in its order, with {left} samples"
        ending = f"{how}; it ends at {segment.epoch_end}"
        return [*lines, ending, f"later epochs have {self.order.length} samples"]


def _first_segments(cursor: Cursor, old: Opened, definitions: Definitions) -> Lineage:
    """Returns the segments up to now of a run that was never amended. Raises `CursorError` for a
    cursor without sizes."""
    size, ranks = cursor.batch_size, cursor.world_size
    if size is None or ranks is None:
        raise CursorError(
            "the cursor does not state the sizes of the run's steps, as one of infeed 0.1; add "
            'them to it: "batch_size", the slots of a batch, and "world_size", the number of ranks'
        )
    made = old.first_segments(definitions, cursor.seed, size, ranks)
    for one in made:
        if one.start % one.global_stride:
            raise InvalidRequestError(
                f"skip: the run skips at position {one.start}, within a step of {size} samples on "
                f"{ranks} ranks, and so cannot be amended; begin another run"
            )
    return tuple(
        replace(one, pipeline=cursor.pipeline) for one in made if one.start <= cursor.position
    )


def _check_data(old: Opened, new: Opened) -> None:
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


def _cursor(run: str | Mapping[str, Any] | Cursor) -> Cursor:
    """Returns the cursor of a run. Raises `CursorError`."""
    if not isinstance(run, str):
        return Cursor.from_json(run)
    found = load_run(run).cursor
    if found is None:
        raise CursorError(
            f"{run!r} is a pipeline, and has no step yet; give a file with what Feed.state() "
            "returned"
        )
    return found
