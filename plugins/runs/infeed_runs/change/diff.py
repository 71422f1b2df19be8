"""Comparison of two runs: what differs in their definitions, and by arithmetic which samples and
draws of the sample stream do. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from infeed.cursor import Cursor
from infeed.run import Run
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Lineage
from infeed_runs.change.changes import Change, definition_changes, segment_changes
from infeed_runs.change.definitions import Definitions, Opened, split_name
from infeed_runs.change.samples import sample_codes
from infeed_runs.run_file import load_run
from infeed_server.order import RunOrder, Slots
from infeed_server.pipeline.lineage import order_of
from infeed_server.pipeline.load import Pipelines

MAX_POSITIONS = 1_000_000
"""Positions that are compared unless a range is given."""

SHOWN = 10
"""Positions that are listed."""

_TOGETHER = 1 << 16


@dataclass(frozen=True)
class DiffOptions:
    """The part of two runs that is compared, and how. None: see `infeed diff`."""

    steps: tuple[int, int] | None = None
    batch_size: int | None = None
    world_size: int | None = None
    names: bool = False
    """Whether samples of different sources are compared by file and offset, however many."""


@dataclass(frozen=True)
class OtherSlot:
    """A position whose sample or draws differ: its step, rank and slot in the first run, the sample
    of each with its name, and the reason."""

    position: int
    step: int
    rank: int
    slot: int
    samples: tuple[int, int]
    names: tuple[str, str]
    reason: str


@dataclass
class Difference:
    """What differs between two runs. `samples` counts positions with other samples, `draws` those
    with other draws of random transforms, both of `positions`; `reasons` counts them by reason."""

    identical: bool
    changes: list[Change] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    compared: str = ""
    samples: int = 0
    draws: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    first: list[OtherSlot] = field(default_factory=list)

    @property
    def positions(self) -> int:
        return self.end - self.begin

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "changes": [vars(change) for change in self.changes],
            "first": [vars(slot) for slot in self.first],
        }


def diff(
    a: str | Mapping[str, Any] | Cursor,
    b: str | Mapping[str, Any] | Cursor,
    pipelines: Sequence[str | Pipelines] = (),
    options: DiffOptions | None = None,
) -> Difference:
    """Returns what differs between two runs or definitions, and in which positions.

    a, b       a cursor or its JSON file, or `FILE.yaml[:PIPELINE][@SEED]`
    pipelines  files with the definitions of the cursors, old and new ones
    options    the steps to compare, and how

    Raises `InvalidRequestError`, `ConfigError` and `SourceError`.
    """
    options = options or DiffOptions()
    with Definitions(*pipelines) as definitions:
        # First both: a cursor can be one of the definition that it is compared with.
        given = [_Given.of(text, definitions) for text in (a, b)]
        one, other = (
            _Side.of(own, theirs, definitions, options)
            for own, theirs in zip(given, given[::-1], strict=True)
        )
        changes = _changes(one, other, definitions)
        if not changes:
            return Difference(identical=True)
        result = Difference(False, changes, *_range(one, other, options))
        _compare(one, other, result, options)
        return result


@dataclass(frozen=True)
class _Given:
    """One of two runs, as it is named: a cursor, or a pipeline of a file with a seed."""

    cursor: Cursor | None = None
    file: int = 0
    name: str | None = None
    seed: int | None = None

    @classmethod
    def of(cls, text: str | Mapping[str, Any] | Cursor, definitions: Definitions) -> _Given:
        if isinstance(text, str) and Path(text).suffix != ".json":
            file, name, seed = split_name(text)
            return cls(None, definitions.include(file), name, seed)
        return cls((load_run(text) if isinstance(text, str) else Run.of(text)).cursor)

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        return Run.of(self.cursor).sizes(0) if self.cursor else (None, None)


@dataclass(frozen=True)
class _Side:
    """One of two runs, with the definition of its last segment."""

    opened: Opened
    lineage: Lineage
    run: RunOrder

    @classmethod
    def of(
        cls, given: _Given, other: _Given, definitions: Definitions, options: DiffOptions
    ) -> _Side:
        """Opens a run. It has the sizes of the options, else its own, else the other's."""
        cursor, seed = given.cursor, given.seed
        if cursor is not None:
            opened = definitions.find(cursor.fingerprint, cursor.pipeline, was="--pipelines")
            lineage, seed = cursor.segments, cursor.seed
        else:
            opened, lineage = definitions.open(given.name, file=given.file), ()
            seed = opened.definition.shuffle.seed if seed is None else seed
        if not lineage:
            sizes = given.sizes, other.sizes
            size = options.batch_size or sizes[0][0] or sizes[1][0] or opened.size
            ranks = options.world_size or sizes[0][1] or sizes[1][1] or 1
            lineage = opened.segments(seed, size, ranks)
        return cls(opened, lineage, order_of(lineage, opened.removed))

    def place(self, position: int) -> tuple[int, int, int]:
        """Returns the step, rank and slot of a position."""
        segment = next(one for one in reversed(self.lineage) if one.start <= position)
        step, within = divmod(position - segment.start, segment.global_stride)
        return segment.step + step, *divmod(within, segment.batch_size)

    def position(self, step: int) -> int:
        segment = next((one for one in reversed(self.lineage) if one.step <= step), self.lineage[0])
        return segment.start + (step - segment.step) * segment.global_stride


def _changes(one: _Side, other: _Side, definitions: Definitions) -> list[Change]:
    changes = []
    if one.opened.fingerprint != other.opened.fingerprint:
        plans = [definitions.plan(side.opened) for side in (one, other)]
        fields = dict.fromkeys(f.name for plan in plans for f in plan.spec.element_spec)
        changes = definition_changes(one.opened, other.opened, [*fields])
    changes += segment_changes(one.lineage[-1], other.lineage[-1])
    texts = [_segments_text(side.lineage) for side in (one, other)]
    if texts[0] != texts[1]:
        changes.append(Change("segments", texts[0], texts[1]))
    return changes


def _segments_text(lineage: Lineage) -> str:
    """Returns the segments as a text; empty for a run that was never amended."""
    if len(lineage) == 1:
        return ""
    return ", ".join(
        f"step {one.step} at position {one.start}: {one.fingerprint[:8]}@{one.seed}, epoch "
        f"{one.epoch} at {one.offset}, {one.batch_size} x {one.world_size}"
        for one in lineage
    )


def _range(one: _Side, other: _Side, options: DiffOptions) -> tuple[int, int]:
    if options.steps is not None:
        first, end = (one.position(step) for step in options.steps)
        if first >= end:
            raise InvalidRequestError(f"steps {options.steps}: there is none between the two")
        return first, end
    # Up to where the runs part, they are the same.
    parting = [a for a, b in zip(one.lineage, other.lineage, strict=False) if a != b]
    longer = max(one.lineage, other.lineage, key=len)
    common = min(len(one.lineage), len(other.lineage))
    first = parting[0].start if parting else longer[common].start if len(longer) > common else 0
    length = max(side.run.last.length for side in (one, other))
    return first, first + min(length, MAX_POSITIONS)


def _compare(one: _Side, other: _Side, result: Difference, options: DiffOptions) -> None:
    codes, result.compared = sample_codes(one.opened, other.opened, names=options.names)
    for first in range(result.begin, result.end, _TOGETHER):
        count = min(_TOGETHER, result.end - first)
        a, b = (side.run.slots(first, count) for side in (one, other))
        ours, theirs = (code(x.index) for code, x in zip(codes, (a, b), strict=True))
        others = ours != theirs
        # Keys are of ids, whatever the samples are.
        draws = (a.key != b.key).any(axis=1)
        rows = np.flatnonzero(others | draws)
        result.samples += int(others.sum())
        result.draws += int(draws.sum())
        removed = _removed(one, other, a, b)
        for reason, found in (
            ("removed sample", removed[rows]),
            ("other order", (others & ~removed)[rows]),
            ("other draws of the same sample", (~others & ~removed)[rows]),
        ):
            if count := int(found.sum()):
                result.reasons[reason] = result.reasons.get(reason, 0) + count
        for row in rows[: SHOWN - len(result.first)].tolist():
            samples = int(a.index[row]), int(b.index[row])
            names = [
                str(side.opened.source.provenance(index))
                for side, index in zip((one, other), samples, strict=True)
            ]
            reason = "other order" if others[row] else "other draws"
            if others[row] and removed[row]:
                reason = "in the place of a removed sample"
            for name, x in (("first", a), ("second", b)):
                if x.index[row] != x.visited[row]:
                    reason = f"substitute of a removed sample in the {name}"
            place = one.place(first + row)
            slot = OtherSlot(first + row, *place, samples, (names[0], names[1]), reason)
            result.first.append(slot)


def _removed(one: _Side, other: _Side, a: Slots, b: Slots) -> np.ndarray:
    """Returns where a removal is the reason: a substitute, or another sample in a removed one's
    place."""
    reason: np.ndarray = (a.index != a.visited) | (b.index != b.visited)
    for side, slots in ((one, b), (other, a)):
        reason |= side.run.last.removed.contains(slots.index)
    return reason
