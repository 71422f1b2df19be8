"""The comparison of a shard with its source: file by file, record by record, byte by byte."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import bits
from infeed_server.pack.plan import Plan
from infeed_server.pack.reader import Bad, SampleReader, check_identity
from infeed_server.pack.shards import serve_lines
from infeed_server.pack.work import Report, build_shard, file_hash, packed
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source


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


def verify_shard(
    plan: Plan, destination: Destination, reader: SampleReader, entry: Mapping[str, Any]
) -> list[Defect]:
    """Returns what is wrong with a shard and the files beside it."""
    check_identity(reader.source, plan.identity)
    name = entry["name"]
    defects = []
    for suffix, digest in entry["beside"].items():
        content = destination.read(name + suffix)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            problem = "does not exist" if content is None else "its hash is not the manifest's"
            defects.append(Defect(name + suffix, problem))
    if destination.size(name) < 0:
        return [*defects, Defect(name, "does not exist")]
    with destination.local(name) as path:
        if file_hash(path) != entry["sha256"]:
            return [*defects, _compare_bytes(plan, reader, entry, path)]
        is_empty = not entry["samples"]  # each of its samples was skipped
        if not (defects or is_empty) and (found := _compare_values(plan, reader, entry, path)):
            return [found]
    return defects


def _compare_bytes(
    plan: Plan, reader: SampleReader, entry: Mapping[str, Any], path: Path
) -> Defect:
    """Packs the shard again, and returns the first byte that differs."""
    name = entry["name"]
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder, name)
        sidecar, _ = build_shard(plan, reader, entry["first"] // plan.per_shard, good)
        byte = _first_difference(path, good)
        if sidecar["sha256"] != entry["sha256"]:
            problem = "the source makes another shard now, and the file is another"
            return Defect(name, problem, byte=byte)
        source = open_source(_pipeline(plan, good).source)
        begins = [source.provenance(record).offset for record in range(entry["samples"])]
    size = path.stat().st_size
    problem = "differs from the packed one"
    if size != entry["bytes"]:
        problem += f": the file has {size} bytes of {entry['bytes']}"
    before = sum(begin <= byte for begin in begins if begin is not None)
    return Defect(name, problem, max(0, before - 1) if None not in begins else None, byte)


def _compare_values(
    plan: Plan, reader: SampleReader, entry: Mapping[str, Any], path: Path
) -> Defect | None:
    """Returns the first record that is served other than it was packed."""
    name, pipeline = entry["name"], _pipeline(plan, path)
    expected = packed(plan, reader, entry["first"] // plan.per_shard, Report())
    with closing(open_source(pipeline.source)) as source:
        found = SampleReader(source, pipeline.transforms).samples(range(len(source)))
        for wanted, served in zip_longest(expected, found):
            if wanted is None or served is None:
                return Defect(name, f"has another number of records than {entry['samples']}")
            (index, values), (record, sample) = wanted, served
            byte = source.provenance(record).offset
            if isinstance(sample, Bad):
                return Defect(name, f"cannot be read: {sample.problem}", record, byte)
            for field, value in values.items():
                if bits(value) != bits(sample[field]):
                    problem = f"field {field!r} is not the one of sample {index}"
                    return Defect(name, problem, record, byte)
    return None


def _pipeline(plan: Plan, shard: Path) -> Pipeline:
    """Returns the pipeline that serves a shard, as the command prints it."""
    lines = serve_lines(plan.options.format, plan.fields, str(shard))
    return parse({**yaml.safe_load("\n".join(lines)), "batch": 1})


def _first_difference(first: Path, second: Path) -> int:
    one, other = np.fromfile(first, np.uint8), np.fromfile(second, np.uint8)
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size
