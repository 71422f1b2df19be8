"""Definitions of runs with their opened sources, found by name or by a run's fingerprint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import Self

from infeed.cursor import Cursor
from infeed.shared.errors import ConfigError, CursorError, InfeedError, InvalidRequestError
from infeed.shared.spec.segment import Lineage
from infeed_server.order import SampleOrder
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import (
    IndexedPlan,
    definition_fingerprint,
    plan_indexed,
    sample_order,
)
from infeed_server.pipeline.lineage import skip_lineage
from infeed_server.pipeline.load import Pipelines, load, located
from infeed_server.pipeline.removal import removed_samples
from infeed_server.sources.base import IndexedDefinition, Source
from infeed_server.sources.concat import ConcatSource

MAX_TAILS = 4096
"""Shorter lists of removed samples that a search for a fingerprint tries."""

_MAX_NAMED = 8


@dataclass(frozen=True)
class Opened:
    """A definition with its source and the ids of the samples that it removes."""

    name: str
    definition: Pipeline
    source: Source = field(repr=False)
    removed: tuple[int, ...]

    @property
    def parts(self) -> tuple[Source, ...]:
        """The first source and the added ones."""
        return self.source.sources

    @property
    def fingerprint(self) -> str:
        return definition_fingerprint(self.definition, self.source, self.removed)

    def order(self, seed: int) -> SampleOrder:
        """Returns the order of its epochs."""
        order = sample_order(self.definition, self.source, self.removed)
        return replace(order, seed=seed)

    @property
    def size(self) -> int:
        """The slots of a batch; 1 if the definition has no batch."""
        return self.definition.batch.size if self.definition.batch else 1

    def segments(self, seed: int, batch_size: int, world_size: int) -> Lineage:
        """Returns the segments of a run that was never amended: one, plus one for each range of
        steps that the definition skips."""
        names = {"pipeline": self.name, "fingerprint": self.fingerprint}
        made = skip_lineage(self.order(seed), self.definition.skip, self.size, **names)
        return tuple(
            replace(
                segment,
                step=segment.start // (batch_size * world_size),
                batch_size=batch_size,
                world_size=world_size,
            )
            for segment in made
        )

    def first_segments(self, cursor: Cursor) -> Lineage:
        """Returns the segments so far of a run that was never amended. Raises `CursorError` for a
        cursor without sizes."""
        size, ranks = cursor.batch_size, cursor.world_size
        if size is None or ranks is None:
            raise CursorError(
                "the cursor, perhaps of infeed 0.1, does not state the sizes of the run's steps; "
                'add "batch_size", the slots of a batch, and "world_size", the number of ranks'
            )
        made = replace(self, name=cursor.pipeline).segments(cursor.seed, size, ranks)
        for one in made:
            if one.start % one.global_stride:
                raise InvalidRequestError(
                    f"skip: the run skips at position {one.start}, within a step of {size} samples "
                    f"on {ranks} ranks, so it cannot be amended; begin another run"
                )
        return tuple(one for one in made if one.start <= cursor.position)

    def reduced(self) -> Iterator[Opened]:
        """Yields the definition, then its possible earlier states, before the last sources were
        added, the last samples removed, or steps skipped."""
        add, skip = self.definition.add, self.definition.skip
        for kept in range(len(add), -1, -1):
            source = self.source if kept == len(add) else _join(self.definition, self.parts, kept)
            fitting = [index < len(source) for index in self.removed]
            longest = fitting.index(False) if False in fitting else len(fitting)
            tails = dict.fromkeys([longest, 0, *range(longest - 1, -1, -1)][: MAX_TAILS + 2])
            for ranges in range(len(skip), -1, -1):
                for length in tails:
                    ids = self.removed[:length]
                    remove = self.definition.remove if length else None
                    remove = remove and remove.model_copy(update={"samples": ids})
                    update = {"add": add[:kept], "skip": skip[:ranges], "remove": remove}
                    definition = self.definition.model_copy(update=update)
                    yield Opened(self.name, definition, source, ids)


class Definitions:
    """The pipelines of files; a source is opened on first use."""

    def __init__(self, *files: str | Pipelines) -> None:
        """Takes files or objects, named as for `infeed serve`, or pipelines by name. Raises
        `ConfigError`."""
        self.files = [load(file) if isinstance(file, str) else file for file in files]
        self._opened: dict[tuple[int, str], Opened] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def include(self, file: str) -> int:
        """Adds a file and returns its number for `open`."""
        self.files.append(load(file))
        return len(self.files) - 1

    def open(self, name: str | None, preferred: str = "", file: int = 0) -> Opened:
        """Opens a pipeline of a file; None opens the only one, or the preferred one of several.
        Raises `InvalidRequestError`, `ConfigError` and `SourceError`."""
        pipelines = self.files[file]
        if name is None:
            name = next(iter(pipelines)) if len(pipelines) == 1 else preferred
        if name not in pipelines:
            problem = f"no pipeline {name!r}" if name else "several pipelines"
            raise InvalidRequestError(
                f"the file has {problem}; name one of them: {', '.join(pipelines)}", pipeline=name
            )
        return self._open(file, name)

    def find(self, fingerprint: str, preferred: str, *, was: str = "--was") -> Opened:
        """Returns the definition with a fingerprint: a pipeline of the files, or an earlier state
        of one. Raises `InvalidRequestError`."""
        looked_at: list[str] = []
        places = [(number, name) for number, file in enumerate(self.files) for name in file]
        for number, name in sorted(places, key=lambda place: place[1] != preferred):
            try:
                opened = self._open(number, name)
            except InfeedError as error:
                looked_at.append(f"{name} (not opened: {error.message})")
                continue
            tried = 0
            for found in opened.reduced():
                if found.fingerprint == fingerprint:
                    return found
                tried += 1
            before = f" and {tried - 1} earlier states of it" if tried > 1 else ""
            looked_at.append(f"{name} ({opened.fingerprint}){before}")
        more = f" and {len(looked_at) - _MAX_NAMED} more" * (len(looked_at) > _MAX_NAMED)
        raise InvalidRequestError(
            f"no definition has the run's fingerprint {fingerprint}; looked at "
            f"{', '.join(looked_at[:_MAX_NAMED]) or 'no file'}{more}; keep the old definition "
            f"beside the new one, or give a file that contains it as {was}",
            fingerprint=fingerprint,
        )

    def plan(self, opened: Opened) -> IndexedPlan:
        """Plans a definition, which also checks it. Raises `ConfigError` and `UserCodeError`."""
        plan = plan_indexed(opened.name, opened.definition, opened.source, cached=False)
        self._stack.callback(plan.source.close)
        return plan

    def _open(self, number: int, name: str) -> Opened:
        if (number, name) not in self._opened:
            definition = self.files[number][name]
            if not isinstance(definition.source, IndexedDefinition):
                raise ConfigError(
                    f"pipeline {name!r} is sequential: its order comes from its dataset, not from "
                    "arithmetic, so its runs cannot be amended or compared; use a source with "
                    "samples by index"
                )
            with located(self.files[number], name):
                source = definition.open()
                self._stack.callback(source.close)
                removed = removed_samples(definition.remove, source)
            self._opened[number, name] = Opened(name, definition, source, removed)
        return self._opened[number, name]


def split_name(text: str) -> tuple[str, str | None, int | None]:
    """Splits `FILE.yaml[:PIPELINE][@SEED]` or `module:attr[:PIPELINE][@SEED]`. A path may contain
    an `@`."""
    seed = re.search(r"@(\d{1,19})$", text)
    file = text[: seed.start()] if seed else text
    head, _, name = file.rpartition(":")
    has_name = head.endswith((".yaml", ".yml")) or ":" in head or Path(head).is_file()
    return (head if has_name else file), (name if has_name else None), seed and int(seed[1])


def _join(definition: Pipeline, parts: Sequence[Source], added: int) -> Source:
    """Returns the first source joined with this number of added ones."""
    if not added:
        return parts[0]
    names = [one.kind for one in (definition.source, *definition.add)]
    return ConcatSource(parts[: added + 1], names)
