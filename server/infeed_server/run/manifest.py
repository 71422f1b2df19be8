"""The manifest of a run: what it was made from, as an in-toto statement that any tool can sign.

It has no times and no paths, so the same run over the same data gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.cursor import Cursor
from infeed.shared.errors import CursorError, InfeedError, InvalidRequestError
from infeed.shared.spec.segment import Lineage
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.order import RunOrder, SampleOrder
from infeed_server.pipeline.lineage import segment_order, shuffle_name
from infeed_server.pipeline.load import Pipelines
from infeed_server.pipeline.removal import removal_reasons
from infeed_server.run.definitions import Definitions, Opened
from infeed_server.sources import Source
from infeed_server.sources.content import ContentHasher, Contents, split
from infeed_server.storage.files import read_bytes
from infeed_server.version import VERSION

TREE = "infeedTreeSha256"
"""The name of the digests of sources, which `sources/content.py` defines."""

_TOGETHER = 64
"""Samples read at a time."""


@dataclass(frozen=True)
class RunData:
    """A run and its sources. Its cursor has all segments, also the only one, the last of them as
    the definition is now; `defined` says which of them have a definition that is there."""

    cursor: Cursor
    opened: Opened
    defined: tuple[bool, ...]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """The samples that the definition removes, and why."""
        reasons = removal_reasons(self.opened.definition.remove)
        return [*zip(self.opened.removed, reasons, strict=True)]

    def order(self) -> RunOrder:
        """Returns the order. Raises `InvalidRequestError` for segments that do not fit."""
        segments = self.cursor.segments
        try:
            orders = [segment_order(segment, self.opened.removed) for segment in segments]
            return RunOrder(segments, orders)
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(f"the run's segments do not fit: {error}") from error


@contextmanager
def open_run(
    cursor: Cursor, pipelines: Pipelines, batch_size: int | None = None, world_size: int = 1
) -> Iterator[RunData]:
    """Opens the pipeline of a run. The sizes are of a run without segments. Raises `InfeedError`
    if the pipeline is missing, or its source cannot be opened."""
    with Definitions(pipelines) as definitions:
        opened = definitions.open(cursor.pipeline)
        order, batch = opened.order(cursor.seed), opened.definition.batch
        cursor = replace(cursor, fingerprint=opened.fingerprint)
        lineage = cursor.segments
        if not lineage:
            size = batch_size or (batch.size if batch else 1)
            made = opened.first_segments(definitions, cursor.seed, size, world_size)
            lineage = tuple(one for one in made if one.start <= cursor.position)
        last = replace(
            lineage[-1],
            fingerprint=cursor.fingerprint,
            sample_count=order.count,
            shuffle=shuffle_name(order),
            removed=len(opened.removed),
            shrinks=order.removed.shrinks,
        )
        lineage = (*lineage[:-1], last)
        cursor = replace(cursor, segments=lineage)
        yield RunData(cursor, opened, tuple(_defined(definitions, lineage)))


def _defined(definitions: Definitions, lineage: Lineage) -> Iterator[bool]:
    for segment in lineage:
        try:
            definitions.find(segment.fingerprint, lineage[-1].pipeline)
        except InfeedError:
            yield False
        else:
            yield True


def make(run: RunData, fingerprint: str, contents: Contents) -> bytes:
    """Returns the manifest of a run that had a fingerprint, "" for a run that did not begin. Raises
    `CursorError` if it was another one, and `InvalidRequestError` for segments that do not fit."""
    if fingerprint not in ("", run.cursor.fingerprint):
        raise CursorError(
            f"the run has fingerprint {fingerprint}, and pipeline {run.cursor.pipeline!r} now has "
            f"{run.cursor.fingerprint}: its definition, data or TensorFlow has changed; restore it"
        )
    run.order()
    return to_bytes(statement(run, contents))


def statement(run: RunData, contents: Contents) -> dict[str, Any]:
    """Returns the manifest as JSON values. `contents` are of all samples."""
    cursor, definition, parts = run.cursor, run.opened.definition, run.opened.parts
    own, roots = cursor.to_json(), split(contents, parts)
    sources = [
        {
            "kind": kind.kind,
            "identity": part.identity,
            "content": content.root,
            "samples": len(content),
            "unreadable": content.unreadable,
        }
        for kind, part, content in zip(
            (definition.source, *definition.add), parts, roots, strict=True
        )
    ]
    subject = [{"name": "run", "digest": {"sha256": _sha256(to_bytes(own))}}]
    subject += [
        {"name": f"source-{number}", "digest": {TREE: content.root}}
        for number, content in enumerate(roots)
    ]
    listed = definition.remove.samples if definition.remove else ()
    predicate = {
        "software": {
            "infeed": VERSION,
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
        },
        "run": {key: value for key, value in own.items() if key != "segments"},
        "segments": [
            {**asdict(segment), "defined": defined}
            for segment, defined in zip(cursor.segments, run.defined, strict=True)
        ],
        "delivered": _delivered(cursor),
        "sources": sources,
        "removed": [
            {"sample": sample, "content": contents[sample].hex(), "reason": reason}
            for sample, reason in run.removed
        ],
        "removedFile": _sha256(read_bytes(listed)) if isinstance(listed, str) else "",
        "skip": [list(steps) for steps in definition.skip],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://infeed.dev/run-manifest/v1",
        "predicate": predicate,
    }


def to_bytes(value: Mapping[str, Any]) -> bytes:
    """Returns the only bytes that a manifest with these values has."""
    return (json.dumps(value, sort_keys=True, indent=2) + "\n").encode()


def read_contents(
    source: Source, samples: range, advance: Callable[[int], object] = lambda _: None
) -> Contents:
    """Reads and hashes successive samples; `advance` gets the number of each group. Raises
    `SourceError`."""
    reader, hasher = SampleReader(source, (), SampleOrder(len(source), 0)), ContentHasher(samples)
    for start in samples[::_TOGETHER]:
        wanted = np.arange(start, min(start + _TOGETHER, samples.stop))
        hasher.add(*reader.read(wanted))
        advance(len(wanted))
    return hasher.contents()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _delivered(cursor: Cursor) -> list[dict[str, int]]:
    """Returns how many samples of each epoch were delivered, whole epochs of a segment together."""
    found: list[dict[str, int]] = []
    ends = [*(segment.start for segment in cursor.segments[1:]), cursor.position]
    for segment, end in zip(cursor.segments, ends, strict=True):
        begun = max(0, min(end, segment.epoch_end) - segment.start)
        whole, rest = divmod(max(0, end - segment.epoch_end), segment.epoch_length)
        epoch = segment.epoch
        if begun and found and found[-1]["last"] == epoch:
            found[-1]["samples"] += begun
            begun = 0
        for length, samples in ((1, begun), (whole, segment.epoch_length), (1, rest)):
            if length and samples:
                found.append({"first": epoch, "last": epoch + length - 1, "samples": samples})
            epoch += length
    return found
