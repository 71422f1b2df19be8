"""The work on one shard, which gives the same bytes in any process on any host."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.shared.errors import SampleError, SourceError
from infeed_formats.tfrecord.index import packed_records
from infeed_server.storage.files import INDEX_SUFFIX
from infeed_tools.pack.destination import Destination
from infeed_tools.pack.fields import Values
from infeed_tools.pack.images import BadImageError, decode, shrink
from infeed_tools.pack.options import OnBad
from infeed_tools.pack.plan import Plan, to_json
from infeed_tools.pack.reader import SampleReader
from infeed_tools.pack.shards import write_shard

_SIDECAR_SUFFIX = ".json"
"""Ending of the file that is written last, when a shard is finished."""

_ORIGINS_SUFFIX = ".origins.gz"
"""Ending of a shard's list of original samples, with a line of id, file and byte for each."""


@dataclass
class Report:
    """Notes about a shard's samples."""

    skipped: list[dict[str, Any]] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    origins: list[str] = field(default_factory=list)


def read_sidecar(plan: Plan, destination: Destination, shard: int) -> dict[str, Any] | None:
    """Returns the sidecar of a finished shard; None if it is unfinished, belongs to another pack,
    or treats bad samples by another `on_error`."""
    name = plan.name(shard)
    try:
        sidecar: dict[str, Any] = json.loads(destination.read(name + _SIDECAR_SUFFIX) or b"{}")
        finished = sidecar["pack"] == plan.digest and sidecar["bytes"] == destination.size(name)
        for kind, choice in (("skipped", OnBad.SKIP), ("kept", OnBad.KEEP)):
            finished &= not sidecar[kind] or plan.options.on_error is choice
    except (ValueError, TypeError, KeyError):
        return None
    return sidecar if finished else None


def pack_shard(
    plan: Plan, destination: Destination, reader: SampleReader, shard: int
) -> dict[str, Any]:
    """Writes a shard and the files beside it; returns its sidecar."""
    if reader.source.identity != plan.identity:
        text = "the source changed while it was packed; restore it, or pack the changed one into an"
        raise SourceError(f"{text} empty DEST", fault="changed")
    name, report = plan.name(shard), Report()
    try:
        with destination.writing(name) as path:
            records = write_shard(path, plan.fields, _samples(plan, reader, shard, report))
            size, digest = path.stat().st_size, _file_hash(path)
        sidecar = {
            "pack": plan.digest,
            "name": name,
            "first": plan.range(shard).start,
            "samples": len(report.origins),
            "bytes": size,
            "sha256": digest,
            "skipped": report.skipped,
            "kept": report.kept,
            "changes": dict(sorted(report.changes.items())),
        }
        origins = "".join(report.origins).encode(errors="surrogateescape")
        destination.write(name + _ORIGINS_SUFFIX, gzip.compress(origins, mtime=0))
        destination.write(name + INDEX_SUFFIX, packed_records(records, size))
        destination.write(name + _SIDECAR_SUFFIX, to_json(sidecar))
    except FileNotFoundError:
        # Another command has finished all shards, including this one, and removed the file.
        if (found := read_sidecar(plan, destination, shard)) is None:
            raise
        return found
    return sidecar


def _samples(plan: Plan, reader: SampleReader, shard: int, report: Report) -> Iterator[Values]:
    """Yields the samples of a shard, with reduced images, and notes them. Raises `SampleError` for
    a bad one that is neither skipped nor kept."""
    on_error = plan.options.on_error
    for index, sample in reader.samples(plan.order(shard)):
        values: dict[str, Any] = {} if isinstance(sample, str) else dict(sample)
        name, problem = _reduce(plan, values, report) if values else ("", str(sample))
        origin = reader.source.provenance(index)
        if problem and (on_error is OnBad.RAISE or (on_error is OnBad.KEEP and not values)):
            of_field = f", field {name!r}," if name else ""
            remedy = "repair it, or give --on-error skip" + (" or keep" if values else "")
            text = f"sample {index}{of_field} of {origin}: {problem}; {remedy}"
            raise SampleError(text, sample_id=index, file=origin)
        if problem:
            bad = report.skipped if on_error is OnBad.SKIP else report.kept
            file = plan.below(str(origin))
            bad.append({"sample": index, "file": file, "problem": problem, "field": name})
        if not problem or on_error is OnBad.KEEP:
            byte = "" if origin.offset is None else origin.offset
            report.origins.append(f"{index}\t{plan.below(origin.file)}\t{byte}\n")
            yield values


def _file_hash(path: Path) -> str:
    """Returns the hash of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _reduce(plan: Plan, values: dict[str, Any], report: Report) -> tuple[str, str]:
    """Reduces the images of a sample; returns the field and the problem of a bad one."""
    bad = ("", "")
    for name in [one.name for one in plan.fields if one.image and plan.options.short_side]:
        try:
            if plan.options.reduces(name):
                values[name], changes, _ = shrink(values[name], plan.options)
                report.changes.update(changes)
            else:
                decode(values[name])
        except BadImageError as error:
            bad = (name, f"the image cannot be decoded: {error}")
    return bad
