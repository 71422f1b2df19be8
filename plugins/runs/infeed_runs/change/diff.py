"""Comparison of two runs: the differences of their definitions, and by arithmetic, without decoding
anything, those of their samples and random draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.cursor import Cursor
from infeed.shared.errors import InvalidRequestError
from infeed_runs.change.changes import Change, definition_changes, segment_changes
from infeed_runs.change.definitions import Definitions
from infeed_runs.change.samples import sample_codes
from infeed_runs.change.sides import DiffOptions, Given, Side
from infeed_server.order import Slots
from infeed_server.pipeline.load import Pipelines

MAX_POSITIONS = 1_000_000
"""Positions compared if no range is given."""

SHOWN = 10
"""Positions listed in a result."""

_TOGETHER = 1 << 16


@dataclass(frozen=True)
class OtherSlot:
    """A position whose sample or draws differ: its step, rank and slot in the first run, the sample
    of each run with its name, and the reason."""

    position: int
    step: int
    rank: int
    slot: int
    samples: tuple[int, int]
    names: tuple[str, str]
    reason: str


@dataclass
class Difference:
    """The differences between two runs. Of the `positions` compared, `samples` counts those with
    different samples, `draws` those with different random draws, and `reasons` all by reason."""

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
    """Returns the differences between two runs or definitions, and the positions they affect.

    a, b       a cursor or its JSON file, or `FILE.yaml[:PIPELINE][@SEED]`
    pipelines  files with the cursors' definitions, old and new
    options    the steps to compare, and how

    Raises `InvalidRequestError`, `ConfigError` and `SourceError`.
    """
    options = options or DiffOptions()
    with Definitions(*pipelines) as definitions:
        # Both first: a cursor's definition can be in the file of the other run.
        given = [Given.of(text, definitions) for text in (a, b)]
        one, other = (
            Side.of(own, theirs, definitions, options)
            for own, theirs in zip(given, given[::-1], strict=True)
        )
        changes = _changes(one, other, definitions)
        if not changes:
            return Difference(identical=True)
        result = Difference(False, changes, *_range(one, other, options))
        _compare(one, other, result, options)
        return result


def _changes(one: Side, other: Side, definitions: Definitions) -> list[Change]:
    changes = []
    if one.opened.fingerprint != other.opened.fingerprint:
        plans = [definitions.plan(side.opened) for side in (one, other)]
        fields = dict.fromkeys(f.name for plan in plans for f in plan.spec.element_spec)
        changes = definition_changes(one.opened, other.opened, [*fields])
    changes += segment_changes(one.lineage[-1], other.lineage[-1])
    texts = [side.segments_text() for side in (one, other)]
    if texts[0] != texts[1]:
        changes.append(Change("segments", texts[0], texts[1]))
    return changes


def _range(one: Side, other: Side, options: DiffOptions) -> tuple[int, int]:
    if options.steps is not None:
        first, end = (one.position(step) for step in options.steps)
        if first >= end:
            raise InvalidRequestError(f"steps {options.steps}: empty range; give a later end")
        return first, end
    # The runs are equal up to the position where they diverge.
    parting = [a for a, b in zip(one.lineage, other.lineage, strict=False) if a != b]
    longer = max(one.lineage, other.lineage, key=len)
    common = min(len(one.lineage), len(other.lineage))
    first = parting[0].start if parting else longer[common].start if len(longer) > common else 0
    length = max(side.run.last.length for side in (one, other))
    return first, first + min(length, MAX_POSITIONS)


def _compare(one: Side, other: Side, result: Difference, options: DiffOptions) -> None:
    codes, result.compared = sample_codes(one.opened, other.opened, names=options.names)
    for first in range(result.begin, result.end, _TOGETHER):
        count = min(_TOGETHER, result.end - first)
        a, b = (side.run.slots(first, count) for side in (one, other))
        ours, theirs = (code(x.index) for code, x in zip(codes, (a, b), strict=True))
        others = ours != theirs
        # Keys depend only on ids, not on the samples themselves.
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
            if (place := one.place(first + row)) is None:
                continue
            slot = OtherSlot(first + row, *place, samples, (names[0], names[1]), reason)
            result.first.append(slot)


def _removed(one: Side, other: Side, a: Slots, b: Slots) -> np.ndarray:
    """Returns a mask of the slots that differ because of a removal: they hold a substitute, or a
    sample that the other run has removed."""
    reason: np.ndarray = (a.index != a.visited) | (b.index != b.visited)
    for side, slots in ((one, b), (other, a)):
        reason |= side.run.last.removed.contains(slots.index)
    return reason
