"""The work on one shard: packing it, in any process, on any host, with the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import Values
from infeed_server.pack.plan import Plan, to_json
from infeed_server.pack.reader import Report, SampleReader, below, check_identity
from infeed_server.pack.shards import write_shard
from infeed_server.sources.tfrecord.index import packed_records
from infeed_server.storage.files import INDEX_SUFFIX

ORIGINS_SUFFIX = ".origins.gz"
"""End of the name of a shard's list of original samples: a line of id, file and byte for each."""

_HASHED_AT_ONCE = 4 << 20


def sidecar_name(shard: str) -> str:
    """Returns the name of the file that is written last, when a shard is finished."""
    return f"{shard}.json"


def read_sidecar(plan: Plan, destination: Destination, shard: int) -> dict[str, Any] | None:
    """Returns the sidecar of a finished shard; None for one that is not, or of another pack."""
    name = plan.name(shard)
    try:
        sidecar = json.loads(destination.read(sidecar_name(name)) or b"null")
        finished = sidecar["pack"] == plan.digest() and sidecar["bytes"] == destination.size(name)
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
        with destination.unfinished(name) as path:
            sidecar, beside = build_shard(plan, reader, shard, path)
            destination.publish(path, name)
    except FileNotFoundError:
        # Another command has finished all shards, this one too, and removed the file.
        if (other := read_sidecar(plan, destination, shard)) is None:
            raise
        return other
    for suffix, content in beside.items():
        destination.write(name + suffix, content)
    destination.write(sidecar_name(name), to_json(sidecar))
    return sidecar


def build_shard(
    plan: Plan, reader: SampleReader, shard: int, path: Path
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Writes a shard to a local file; returns its sidecar, and suffix → content of the other files
    beside it."""
    report, origins = Report(), []
    position = plan.range(shard).start

    def numbered() -> Iterator[tuple[int, Values]]:
        samples = reader.samples(plan.order(shard))
        for index, values in reader.packed(samples, plan.fields, report):
            origin = reader.source.provenance(index)
            byte = "" if origin.offset is None else origin.offset
            origins.append(f"{index}\t{below(plan.root, origin.file)}\t{byte}\n")
            yield position + len(origins) - 1, values

    records = write_shard(path, plan.options.format, numbered(), plan.fields)
    text = "".join(origins).encode(errors="surrogateescape")
    size = path.stat().st_size
    beside = {ORIGINS_SUFFIX: gzip.compress(text, mtime=0)}
    if records is not None:
        beside[INDEX_SUFFIX] = packed_records(records, size)
    sidecar = {
        "pack": plan.digest(),
        "name": plan.name(shard),
        "first": position,
        "samples": len(origins),
        "bytes": size,
        **file_hashes(path),
        "beside": {
            suffix: xxhash.xxh3_128_hexdigest(content) for suffix, content in sorted(beside.items())
        },
        **report.document(plan.root),
    }
    return sidecar, beside


def file_hashes(path: Path) -> dict[str, str]:
    """Returns the hashes of a file's bytes."""
    fast, known = xxhash.xxh3_128(), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASHED_AT_ONCE):
            fast.update(chunk)
            known.update(chunk)
    return {"xxh3_128": fast.hexdigest(), "sha256": known.hexdigest()}
