"""Comparison of two runs: what differs in their definitions, and by arithmetic which samples and
draws of the sample stream do. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from infeed.cursor import Cursor
from infeed.run import Run, load_run
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Lineage
from infeed_runs.change.changes import Change, definition_changes
from infeed_runs.change.definitions import Definitions, split_name
from infeed_runs.change.samples import Samples, Side, sample_codes
from infeed_server.order import RunOrder
from infeed_server.pipeline.lineage import segment_order
from infeed_server.pipeline.load import Pipelines

MAX_POSITIONS = 1_000_000
"""Positions that are compared unless a range is given."""

SHOWN = 10
"""Positions that are listed."""

_TOGETHER = 1 << 16

_Sizes = tuple[int | None, int | None]


@dataclass(frozen=True)
class DiffOptions:
    """The part of two runs that is compared, and how. None: see `infeed diff`."""

    steps: tuple[int, int] | None = None
    batch_size: int | None = None
    world_size: int | None = None
    names: bool = False
    """Whether samples of different sources are compared by file and offset, however many."""


@dataclass(frozen=True)
class Slot:
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
    first: list[Slot] = field(default_factory=list)

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
        files = [_include(text, definitions) for text in (a, b)]
        cursors = [_cursor(text) for text in (a, b)]
        stated = [Run.of(cursor).sizes(0) if cursor else (None, None) for cursor in cursors]
        one, other = (
            _side(text, file, cursor, definitions, _with_sizes(options, sizes))
            for text, file, cursor, sizes in zip(
                (a, b), files, cursors, (stated, stated[::-1]), strict=True
            )
        )
        changes = _changes(one, other, definitions)
        if not changes:
            return Difference(identical=True)
        result = Difference(False, changes, *_range(one, other, options))
        _compare(one, other, result, options)
        return result


def _is_definition(text: str | Mapping[str, Any] | Cursor) -> bool:
    return isinstance(text, str) and Path(text).suffix != ".json"


def _include(text: str | Mapping[str, Any] | Cursor, definitions: Definitions) -> int | None:
    """Adds the file of a definition, which the other run can be of. Returns its number."""
    return definitions.include(split_name(str(text))[0]) if _is_definition(text) else None


def _cursor(text: str | Mapping[str, Any] | Cursor) -> Cursor | None:
    if _is_definition(text):
        return None
    cursor = (load_run(text) if isinstance(text, str) else Run.of(text)).cursor
    if cursor is None:
        raise InvalidRequestError(f"{text!r} has no cursor; name its file and pipeline")
    return cursor


def _with_sizes(options: DiffOptions, stated: Sequence[_Sizes]) -> DiffOptions:
    """Returns options with the sizes that a side states, or else the other."""
    own, other = stated
    return replace(
        options,
        batch_size=options.batch_size or own[0] or other[0],
        world_size=options.world_size or own[1] or other[1],
    )


def _side(
    text: str | Mapping[str, Any] | Cursor,
    file: int | None,
    cursor: Cursor | None,
    definitions: Definitions,
    options: DiffOptions,
) -> Side:
    if cursor is not None:
        opened = definitions.find(cursor.fingerprint, cursor.pipeline, was="--pipelines")
        seed = cursor.seed
    else:
        assert file is not None  # of a definition
        _, name, given = split_name(str(text))
        opened = definitions.open(name, file=file)
        seed = opened.definition.shuffle.seed if given is None else given
    lineage = cursor.segments if cursor is not None else ()
    if not lineage:
        batch = opened.definition.batch
        size = options.batch_size or (batch.size if batch else 1)
        lineage = opened.first_segments(definitions, seed, size, options.world_size or 1)
    orders = [segment_order(segment, opened.removed) for segment in lineage]
    return Side(opened, lineage, RunOrder(lineage, orders))


def _changes(one: Side, other: Side, definitions: Definitions) -> list[Change]:
    last = one.lineage[-1], other.lineage[-1]
    changes = []
    if one.opened.fingerprint != other.opened.fingerprint:
        plans = [definitions.plan(side.opened) for side in (one, other)]
        fields = dict.fromkeys(f.name for plan in plans for f in plan.spec.element_spec)
        changes = definition_changes(one.opened, other.opened, [*fields])
    for name in ("seed", "batch_size", "world_size"):
        values = [str(getattr(segment, name)) for segment in last]
        if values[0] != values[1]:
            changes.append(Change(name.replace("_", " "), values[0], values[1]))
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


def _range(one: Side, other: Side, options: DiffOptions) -> tuple[int, int]:
    if options.steps is not None:
        first, end = (_position(one.lineage, step) for step in options.steps)
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


def _position(lineage: Lineage, step: int) -> int:
    segment = next((one for one in reversed(lineage) if one.step <= step), lineage[0])
    return segment.start + (step - segment.step) * segment.global_stride


def _compare(one: Side, other: Side, result: Difference, options: DiffOptions) -> None:
    same_source = one.opened.source.identity == other.opened.source.identity
    codes, result.compared = sample_codes(one.opened, other.opened, names=options.names)
    if same_source and one.key == other.key:
        return
    for first in range(result.begin, result.end, _TOGETHER):
        end = min(first + _TOGETHER, result.end)
        a, b = (Samples.of(side, first, end) for side in (one, other))
        ours, theirs = (code(x.index) for code, x in zip(codes, (a, b), strict=True))
        others = ours != theirs
        # Keys are of ids, whatever the samples are.
        draws = a.other_draws(b, a.index != b.index)
        rows = np.flatnonzero(others | draws)
        result.samples += int(others.sum())
        result.draws += int(draws.sum())
        substitutes = _removed(one, other, a, b)[rows]
        for reason, found in (
            ("removed sample", substitutes),
            ("other order", others[rows] & ~substitutes),
            ("other draws of the same sample", ~others[rows] & ~substitutes),
        ):
            if count := int(found.sum()):
                result.reasons[reason] = result.reasons.get(reason, 0) + count
        for row in rows[: SHOWN - len(result.first)].tolist():
            result.first.append(_slot(one, other, first + row, a, b, row, bool(others[row])))


def _removed(one: Side, other: Side, a: Samples, b: Samples) -> np.ndarray:
    """Returns where a removal is the reason: a substitute, or another sample in a removed one's
    place."""
    reason: np.ndarray = a.substitute | b.substitute
    for side, samples in ((one, b), (other, a)):
        reason |= side.run.last.removed.contains(samples.index)
    return reason


def _slot(
    one: Side, other: Side, position: int, a: Samples, b: Samples, row: int, is_other: bool
) -> Slot:
    segment = next(s for s in reversed(one.lineage) if s.start <= position)
    step, within = divmod(position - segment.start, segment.global_stride)
    rank, slot = divmod(within, segment.batch_size)
    samples = int(a.index[row]), int(b.index[row])
    names = [
        str(side.opened.source.provenance(index))
        for side, index in zip((one, other), samples, strict=True)
    ]
    reason = "other order" if is_other else "other draws"
    for name, x in (("first", a), ("second", b)):
        if x.substitute[row]:
            reason = f"substitute of a removed sample in the {name}"
    if reason == "other order" and _removed(one, other, a, b)[row]:
        reason = "in the place of a removed sample"
    return Slot(position, segment.step + step, rank, slot, samples, (names[0], names[1]), reason)
