"""The manifest of a run: what it was made from, as an in-toto statement that any tool can sign.

It has no times and no paths, so the same run over the same data gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.cursor import Cursor
from infeed.shared.errors import ConfigError, CursorError
from infeed.shared.spec.segment import Lineage
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.order import RunOrder, SampleOrder
from infeed_server.order.run_order import begin
from infeed_server.pipeline.definition import Remove
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.lineage import segment_at
from infeed_server.pipeline.load import Pipelines, located
from infeed_server.pipeline.removal import removal_reasons
from infeed_server.sources import DatasetSource, ProgressCallback, Source
from infeed_server.sources.content import ContentHasher, Contents, parts_of, split
from infeed_server.storage.files import read_bytes
from infeed_server.version import VERSION

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://infeed.dev/run-manifest/v1"
TREE = "infeedTreeSha256"
"""The name of the digests of sources, which `sources/content.py` defines."""

_TOGETHER = 64
"""Samples read at a time."""

Advance = Callable[[int], None]
"""Callback with the number of samples that were read since the last call."""


@dataclass(frozen=True)
class OpenRun:
    """A run and its sources. `cursor` has the fingerprint that the definition has now, and all
    segments, also the only one."""

    cursor: Cursor
    plan: IndexedPlan
    source: Source

    @property
    def parts(self) -> Sequence[Source]:
        """The source and the added ones."""
        return parts_of(self.source)

    @property
    def removed(self) -> list[tuple[int, str]]:
        """The samples that the definition removes, and why."""
        reasons = removal_reasons(self.plan.definition.remove)
        return [*zip(self.plan.removed, reasons, strict=True)]

    def order(self) -> RunOrder:
        """Returns the order. Raises `InvalidRequestError` for segments that do not fit."""
        order = self.plan.order(self.cursor.seed, self.cursor.segments)
        assert isinstance(order, RunOrder)
        return order

    def part(self, index: int) -> tuple[int, int]:
        """Returns the number of the source that has a sample, and its id there."""
        begins = np.cumsum([0, *map(len, self.parts)])
        number = int(np.searchsorted(begins, index, side="right")) - 1
        return number, index - int(begins[number])


@contextmanager
def open_run(
    cursor: Cursor,
    pipelines: Pipelines,
    progress: ProgressCallback | None = None,
    *,
    batch_size: int | None = None,
    world_size: int = 1,
) -> Iterator[OpenRun]:
    """Opens the pipeline of a run. The sizes are of a run without segments. Raises `InfeedError`
    if the pipeline is missing, or its source cannot be opened."""
    name = cursor.pipeline
    if name not in pipelines:
        raise ConfigError(f"no pipeline {name!r} of the run; available: {', '.join(pipelines)}")
    definition = pipelines[name]
    if isinstance(definition.source, DatasetSource):
        raise ConfigError(f"pipeline {name!r} is a tf.data.Dataset, which has no samples by index")
    with ExitStack() as stack:
        with located(pipelines, name):
            source = stack.enter_context(closing(definition.open(progress)))
            plan = plan_indexed(name, definition, source, cached=False)
        stack.enter_context(closing(plan.source))
        size = batch_size or plan.spec.batch_size
        segments = cursor.segments or _first_segments(cursor, plan, size, world_size)
        last = replace(segments[-1], fingerprint=plan.spec.fingerprint)
        segments = (*segments[:-1], last)
        now = replace(cursor, fingerprint=last.fingerprint, segments=segments)
        yield OpenRun(now, plan, source)


def _first_segments(cursor: Cursor, plan: IndexedPlan, batch_size: int, world_size: int) -> Lineage:
    """Returns the segments of a run that was not amended."""
    if plan.spec.lineage:
        return tuple(replace(segment, seed=cursor.seed) for segment in plan.spec.lineage)
    order = plan.order(cursor.seed)
    assert isinstance(order, SampleOrder)
    segment = begin(order, partial(segment_at, plan.spec, order))
    return (replace(segment, batch_size=batch_size, world_size=world_size),)


def make(run: OpenRun, fingerprint: str, contents: Contents) -> bytes:
    """Returns the manifest of a run, of which `fingerprint` is known. Raises `CursorError` for
    another one, and `InvalidRequestError` for segments that do not fit."""
    if fingerprint != run.cursor.fingerprint:
        raise CursorError(
            f"the run has fingerprint {fingerprint}, and pipeline {run.cursor.pipeline!r} now has "
            f"{run.cursor.fingerprint}: its definition, data or TensorFlow has changed; restore it"
        )
    run.order()
    return to_bytes(statement(run, contents))


def statement(run: OpenRun, contents: Contents) -> dict[str, Any]:
    """Returns the manifest as JSON values. `contents` are of all samples."""
    cursor, definition = run.cursor, run.plan.definition
    sources, first, roots = [], 0, split(contents, run.parts)
    for number, (part, content) in enumerate(zip(run.parts, roots, strict=True)):
        sources.append(
            {
                "kind": (definition.source, *definition.add)[number].kind,
                "identity": part.identity,
                "content": content.root,
                "first": first,
                "samples": len(part),
                "unreadable": content.unreadable,
                "added": number > 0,
            }
        )
        first += len(part)
    removed = [
        {"sample": sample, "content": contents[sample].hex(), "reason": reason}
        for sample, reason in run.removed
    ]
    own = cursor.to_json()
    subject = [{"name": "run", "digest": {"sha256": hashlib.sha256(to_bytes(own)).hexdigest()}}]
    subject += [
        {"name": f"source-{number}", "digest": {TREE: content.root}}
        for number, content in enumerate(roots)
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "software": {
                "infeed": VERSION,
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
            },
            "run": {key: value for key, value in own.items() if key != "segments"},
            "segments": [asdict(segment) for segment in cursor.segments],
            "epochs": _epochs(cursor),
            "sources": sources,
            "removed": removed,
            "removedList": _list_digest(definition.remove),
            "skipped": [list(steps) for steps in definition.skip],
        },
    }


def _list_digest(remove: Remove | None) -> str:
    """Returns the SHA-256 of the file that lists removed samples; "" without one."""
    if remove is None or not isinstance(remove.samples, str):
        return ""
    return hashlib.sha256(read_bytes(remove.samples)).hexdigest()


def to_bytes(value: Mapping[str, Any]) -> bytes:
    """Returns the only bytes that a manifest with these values has."""
    return (json.dumps(value, sort_keys=True, indent=2) + "\n").encode()


def read_contents(run: OpenRun, advance: Advance) -> Contents:
    """Reads and hashes all samples. Raises `SourceError`."""
    hasher = ContentHasher(len(run.source))
    for start in range(0, len(run.source), _TOGETHER):
        wanted = np.arange(start, min(start + _TOGETHER, len(run.source)))
        hasher.add(*_reader(run.source).read(wanted))
        advance(len(wanted))
    return hasher.contents()


def read_digest(run: OpenRun, sample: int) -> bytes:
    """Reads and hashes a sample. Raises `SourceError`."""
    index, columns = _reader(run.source).read(np.array([sample]))
    hasher = ContentHasher(1)
    hasher.add(index - sample, columns)
    return hasher.contents()[0]


def _reader(source: Source) -> SampleReader:
    return SampleReader(source, (), SampleOrder(len(source), 0))


def _epochs(cursor: Cursor) -> list[dict[str, int]]:
    """Returns how many samples of each epoch were delivered, whole epochs of a segment together."""
    found: list[dict[str, int]] = []
    ends = [*(segment.start for segment in cursor.segments[1:]), cursor.position]
    for segment, end in zip(cursor.segments, ends, strict=True):
        stop = min(end, cursor.position)
        first = min(stop, segment.epoch_end) - segment.start
        whole, rest = divmod(max(0, stop - segment.epoch_end), segment.epoch_length)
        following = segment.epoch + 1
        for epoch, count, samples in (
            (segment.epoch, 1, first),
            (following, whole, segment.epoch_length),
            (following + whole, 1, rest),
        ):
            if count < 1 or samples < 1:
                continue
            if found and found[-1]["last"] == epoch:  # which the segment before has begun
                found[-1]["samples"] += samples
            else:
                found.append({"first": epoch, "last": epoch + count - 1, "samples": samples})
    return found
