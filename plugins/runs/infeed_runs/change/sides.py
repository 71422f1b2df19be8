"""The two runs of a comparison, as named and as opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.cursor import Cursor
from infeed.run import Run
from infeed.shared.spec.segment import Lineage
from infeed_runs.change.definitions import Definitions, Opened, split_name
from infeed_runs.run_file import load_run
from infeed_server.order import RunOrder
from infeed_server.pipeline.lineage import order_of


@dataclass(frozen=True)
class DiffOptions:
    """The part of two runs to compare, and how; for None see `infeed diff`."""

    steps: tuple[int, int] | None = None
    batch_size: int | None = None
    world_size: int | None = None
    names: bool = False
    """Whether to compare samples of different sources by file and offset, however many."""


@dataclass(frozen=True)
class Given:
    """One of two runs as named: a cursor, or a pipeline of a file with a seed."""

    cursor: Cursor | None = None
    file: int = 0
    name: str | None = None
    seed: int | None = None

    @classmethod
    def of(cls, text: str | Mapping[str, Any] | Cursor, definitions: Definitions) -> Given:
        if isinstance(text, str) and Path(text).suffix != ".json":
            file, name, seed = split_name(text)
            return cls(None, definitions.include(file), name, seed)
        return cls((load_run(text) if isinstance(text, str) else Run.of(text)).cursor)

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        return Run.of(self.cursor).sizes(0) if self.cursor else (None, None)


@dataclass(frozen=True)
class Side:
    """One of two runs, with the definition of its last segment."""

    opened: Opened
    lineage: Lineage
    run: RunOrder
    steps: Run

    @classmethod
    def of(cls, given: Given, other: Given, definitions: Definitions, options: DiffOptions) -> Side:
        """Opens a run. Its sizes are those of the options, else its own, else the other run's."""
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
        last = lineage[-1]
        names = (last.pipeline, last.fingerprint, last.seed)
        taken = cursor if cursor and cursor.course else Cursor(*names, last.start, segments=lineage)
        return cls(
            opened, lineage, order_of(lineage, opened.removed, opened.order(0)), Run.of(taken)
        )

    def place(self, position: int) -> tuple[int, int, int] | None:
        """Returns the step, rank and slot of a position; None if it is in no step, or in one that
        the cursor does not record."""
        if (found := self.steps.place(position, 1)) is None:
            return None
        size = self.steps.sizes(found[0])[0] or self.lineage[-1].batch_size
        return found[0], *divmod(found[1], size)

    def position(self, step: int) -> int:
        return self.steps.part_of(step, 1).position(step)

    def segments_text(self) -> str:
        """Returns the segments as text; empty for a run that was never amended."""
        if len(self.lineage) == 1:
            return ""
        return ", ".join(
            f"step {one.step} at position {one.start}: {one.fingerprint[:8]}@{one.seed}, epoch "
            f"{one.epoch} at {one.offset}, {one.batch_size} x {one.world_size}"
            for one in self.lineage
        )
