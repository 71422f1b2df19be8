"""The comparison of a pack with its source: file by file, record by record, byte by byte."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import Values, equal, from_example
from infeed_server.pack.options import Format, PackOptions
from infeed_server.pack.plan import MANIFEST, Plan, to_json
from infeed_server.pack.reader import Report, SampleReader, check_identity
from infeed_server.pack.shards import read_shard
from infeed_server.pack.work import build_shard, file_hashes
from infeed_server.sources.tfrecord.reader import RECORD_COLUMN
from infeed_server.sources.tfrecord.source import TFRecordSource

_COMPARED_AT_ONCE = 1 << 20


class Defect(NamedTuple):
    """The first difference of a file of a pack."""

    file: str
    problem: str
    record: int | None = None
    """Its number in the shard."""
    byte: int | None = None

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        byte = "" if self.byte is None else f", byte {self.byte}"
        return f"{self.file}{record}{byte}: {self.problem}"


def read_manifest(destination: Destination) -> dict[str, Any]:
    """Returns the manifest. Raises `ConfigError` if there is none, or not the one written."""
    path, content = destination.path_of(MANIFEST), destination.read(MANIFEST)
    if content is None:
        raise ConfigError(
            f"{path} does not exist: the pack is not finished; run the same command without "
            "--verify first",
            file=path,
        )
    try:
        manifest: dict[str, Any] = json.loads(content)
        expected = manifest.pop("sha256")
    except (ValueError, KeyError, AttributeError):
        manifest, expected = {}, ""
    if manifest_digest(manifest) != expected:
        raise ConfigError(
            f"{path} is damaged; delete it, and run the same command without --verify, which "
            "writes it again",
            file=path,
        )
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Returns the hash that a manifest has of itself."""
    return hashlib.sha256(to_json(manifest)).hexdigest()


def manifest_options(manifest: Mapping[str, Any]) -> PackOptions:
    """Returns the options of a finished pack."""
    return PackOptions.model_validate_json(json.dumps(manifest["options"]))


def verify_shard(
    plan: Plan, destination: Destination, reader: SampleReader, entry: Mapping[str, Any]
) -> list[Defect]:
    """Returns what is wrong with a shard and the files beside it."""
    check_identity(reader.source, plan.identity)
    name = entry["name"]
    defects = []
    for suffix, digest in entry["beside"].items():
        content = destination.read(name + suffix)
        if content is None or xxhash.xxh3_128_hexdigest(content) != digest:
            problem = "does not exist" if content is None else "its hash is not the manifest's"
            defects.append(Defect(name + suffix, problem))
    with _local(destination, name) as path:
        if path is None:
            return [*defects, Defect(name, "does not exist")]
        if any(entry[kind] != digest for kind, digest in file_hashes(path).items()):
            return [*defects, _compare_bytes(plan, reader, entry, path)]
        if not defects and (found := _compare_values(plan, destination, reader, entry, path)):
            return [found]
    return defects


def _compare_bytes(
    plan: Plan, reader: SampleReader, entry: Mapping[str, Any], path: Path
) -> Defect:
    """Packs the shard again, and returns the first byte that differs."""
    name, number = entry["name"], entry["first"] // plan.per_shard
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder, name)
        sidecar, _ = build_shard(plan, reader, number, good)
        byte = _first_difference(path, good)
        if sidecar["sha256"] != entry["sha256"]:
            return Defect(
                name, "the source makes another shard now, and the file is another", byte=byte
            )
        begins = [begin for begin, _ in read_shard(good, plan.options.format, plan.fields)]
    size = path.stat().st_size
    problem = "differs from the packed one"
    if size != entry["bytes"]:
        problem += f": the file has {size} bytes of {entry['bytes']}"
    record = None
    if begins and begins[0] is not None:
        record = max(0, int(np.searchsorted(np.array(begins), byte, side="right")) - 1)
    return Defect(name, problem, record, byte)


def _compare_values(
    plan: Plan,
    destination: Destination,
    reader: SampleReader,
    entry: Mapping[str, Any],
    path: Path,
) -> Defect | None:
    """Returns the first record that the shard's own source reads other than it was packed."""
    samples = reader.samples(plan.order(entry["first"] // plan.per_shard))
    expected = reader.packed(samples, plan.fields, Report())
    try:
        found = _read(plan, destination, entry, path)
        for record, pair in enumerate(zip_longest(expected, found)):
            if None in pair:
                return Defect(entry["name"], "has another number of records", record)
            (index, wanted), (byte, values) = pair
            for field in plan.fields:
                if not equal(wanted[field.name], values[field.name]):
                    text = f"field {field.name!r} is not the one of sample {index}"
                    return Defect(entry["name"], text, record, byte)
    except (InfeedError, ValueError, KeyError, IndexError) as error:
        return Defect(entry["name"], f"cannot be read: {error}")
    return None


def _read(
    plan: Plan, destination: Destination, entry: Mapping[str, Any], path: Path
) -> Iterator[tuple[int | None, Values]]:
    if plan.options.format is not Format.TFRECORD:
        yield from read_shard(path, plan.options.format, plan.fields)
        return
    # As a server reads it: by the record index beside it, also in a store.
    features: Any = {field.name: "bytes" for field in plan.fields}
    definition = TFRecordSource(tfrecord=destination.path_of(entry["name"]), features=features)
    source = definition.open()
    for number in range(len(source)):
        (record,) = source.read(np.array([number]))[RECORD_COLUMN]
        yield source.provenance(number).offset, from_example(record, plan.fields)


def _first_difference(first: Path, second: Path) -> int:
    done = 0
    with first.open("rb") as one, second.open("rb") as other:
        while True:
            left, right = one.read(_COMPARED_AT_ONCE), other.read(_COMPARED_AT_ONCE)
            if left != right or not left:
                pairs = enumerate(zip(left, right, strict=False))
                shorter = min(len(left), len(right))
                return done + next((at for at, (a, b) in pairs if a != b), shorter)
            done += len(left)


@contextmanager
def _local(destination: Destination, name: str) -> Iterator[Path | None]:
    """Yields the path of a file on this host; None if it does not exist."""
    if destination.size(name) < 0:
        yield None
    elif not destination.is_remote:
        yield Path(destination.path_of(name))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(destination.read(name) or b"")
            yield path
