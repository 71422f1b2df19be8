"""The work on one shard: packing it, in any process, on any host, with the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.shared.errors import SampleError
from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import Value, Values
from infeed_server.pack.images import BadImageError, decode, shrink
from infeed_server.pack.options import OnBad
from infeed_server.pack.plan import Plan, to_json
from infeed_server.pack.reader import Bad, SampleReader, check_identity
from infeed_server.pack.shards import write_shard
from infeed_server.sources.tfrecord.index import packed_records
from infeed_server.storage.files import INDEX_SUFFIX

_SIDECAR_SUFFIX = ".json"
"""End of the name of the file that is written last, when a shard is finished."""

_ORIGINS_SUFFIX = ".origins.gz"
"""End of the name of a shard's list of original samples: a line of id, file and byte for each."""

_HASHED_AT_ONCE = 4 << 20


@dataclass
class Report:
    """What a shard has besides its samples."""

    skipped: list[Bad] = field(default_factory=list)
    kept: list[Bad] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)


def read_sidecar(plan: Plan, destination: Destination, shard: int) -> dict[str, Any] | None:
    """Returns the sidecar of a finished shard; None for one that is not, or of another pack."""
    name = plan.name(shard)
    try:
        sidecar = json.loads(destination.read(name + _SIDECAR_SUFFIX) or b"null")
        finished = sidecar["pack"] == plan.digest and sidecar["bytes"] == destination.size(name)
    except (ValueError, TypeError, KeyError):
        return None
    return sidecar if finished else None


def pack_shard(
    plan: Plan, destination: Destination, reader: SampleReader, shard: int
) -> dict[str, Any]:
    """Writes a shard and the files beside it, unless another command has; returns its sidecar."""
    if (sidecar := read_sidecar(plan, destination, shard)) is not None:
        return sidecar
    check_identity(reader.source, plan.identity)
    name = plan.name(shard)
    try:
        with destination.writing(name) as path:
            sidecar, beside = build_shard(plan, reader, shard, path)
        for suffix, content in beside.items():
            destination.write(name + suffix, content)
        destination.write(name + _SIDECAR_SUFFIX, to_json(sidecar))
    except FileNotFoundError:
        # Another command has finished all shards, this one too, and removed the file.
        if (sidecar := read_sidecar(plan, destination, shard)) is None:
            raise
    return sidecar


def build_shard(
    plan: Plan, reader: SampleReader, shard: int, path: Path
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Writes a shard to a local file; returns its sidecar, and suffix → content of the other files
    beside it."""
    report, origins = Report(), []

    def values() -> Iterator[Values]:
        for index, sample in packed(plan, reader, shard, report):
            origin = reader.source.provenance(index)
            byte = "" if origin.offset is None else origin.offset
            origins.append(f"{index}\t{plan.below(origin.file)}\t{byte}\n")
            yield sample

    first = plan.range(shard).start
    records = write_shard(path, plan.options.format, plan.fields, values(), first)
    size = path.stat().st_size
    text = "".join(origins).encode(errors="surrogateescape")
    beside = {_ORIGINS_SUFFIX: gzip.compress(text, mtime=0)}
    if records is not None:
        beside[INDEX_SUFFIX] = packed_records(records, size)
    sidecar = {
        "pack": plan.digest,
        "name": plan.name(shard),
        "first": first,
        "samples": len(origins),
        "bytes": size,
        "sha256": file_hash(path),
        "beside": {suffix: hashlib.sha256(beside[suffix]).hexdigest() for suffix in sorted(beside)},
        "skipped": [{**bad._asdict(), "file": plan.below(bad.file)} for bad in report.skipped],
        "kept": [{**bad._asdict(), "file": plan.below(bad.file)} for bad in report.kept],
        "changes": dict(sorted(report.changes.items())),
    }
    return sidecar, beside


def packed(
    plan: Plan, reader: SampleReader, shard: int, report: Report
) -> Iterator[tuple[int, Values]]:
    """Yields the samples of a shard, with their ids in the source and with images reduced, and
    notes the others. Raises `SampleError` for a bad one that is neither skipped nor kept."""
    on_error = plan.options.on_error
    for index, sample in reader.samples(plan.order(shard)):
        values = {} if isinstance(sample, Bad) else dict(sample)
        bad = sample if isinstance(sample, Bad) else _reduce(plan, reader, index, values, report)
        if bad is None:
            yield index, values
        elif on_error is OnBad.SKIP:
            report.skipped.append(bad)
        elif on_error is OnBad.KEEP and values:
            report.kept.append(bad)
            yield index, values
        else:
            of_field = f", field {bad.field!r}," if bad.field else ""
            remedy = "repair it, or give --on-error skip" + (" or keep" if values else "")
            text = f"sample {index}{of_field} of {bad.file}: {bad.problem}; {remedy}"
            raise SampleError(text, sample_id=index, file=bad.file)


def file_hash(path: Path) -> str:
    """Returns the hash of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASHED_AT_ONCE):
            digest.update(chunk)
    return digest.hexdigest()


def _reduce(
    plan: Plan, reader: SampleReader, index: int, values: dict[str, Value], report: Report
) -> Bad | None:
    """Reduces the images of a sample; returns what is bad of it."""
    bad = None
    images = [one.name for one in plan.fields if one.image] if plan.options.short_side else []
    for name in images:
        content = values[name]
        assert isinstance(content, bytes)
        try:
            if plan.options.reduces(name):
                shrunk = shrink(content, plan.options)
                values[name] = shrunk.content
                report.changes.update(shrunk.changes)
            else:
                decode(content)
        except BadImageError as error:
            file = str(reader.source.provenance(index))
            bad = Bad(index, file, f"the image cannot be decoded: {error}", name)
    return bad
