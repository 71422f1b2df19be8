"""The comparison of a shard with its source: file by file, record by record, byte by byte."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import bits
from infeed_server.pack.plan import Plan
from infeed_server.pack.reader import SampleReader
from infeed_server.pack.shards import serve_lines
from infeed_server.pack.work import Report, build_shard, file_hash, packed
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source


class Defect(NamedTuple):
    """The first difference of a file of a pack, at a record of the shard, and at a byte."""

    file: str
    problem: str
    record: int | None = None
    byte: int | None = None

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        byte = "" if self.byte is None else f", byte {self.byte}"
        return f"{self.file}{record}{byte}: {self.problem}"


def verify_shard(
    plan: Plan, destination: Destination, reader: SampleReader, entry: Mapping[str, Any]
) -> list[Defect]:
    """Returns what is wrong with a shard and the files beside it."""
    name, defects = entry["name"], []
    for suffix, digest in {**entry["beside"], "": entry["sha256"]}.items():
        with destination.local(name + suffix) as path:
            if not path.exists():
                defects.append(Defect(name + suffix, "does not exist"))
            elif file_hash(path) != digest:
                other = Defect(name + suffix, "its hash is not the manifest's")
                defects.append(other if suffix else _compare_bytes(plan, reader, entry, path))
            elif not (suffix or defects) and entry["samples"]:  # else each was skipped
                defects += _compare_values(plan, reader, entry, path)
    return defects


def _compare_bytes(
    plan: Plan, reader: SampleReader, entry: Mapping[str, Any], path: Path
) -> Defect:
    """Packs the shard again, and returns the first byte that differs."""
    name = entry["name"]
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder, name)
        sidecar, _ = build_shard(plan, reader, entry["first"] // plan.per_shard, good)
        one, other = np.fromfile(path, np.uint8), np.fromfile(good, np.uint8)
        size = min(len(one), len(other))
        byte = int(np.append(np.flatnonzero(one[:size] != other[:size]), size)[0])
        if sidecar["sha256"] != entry["sha256"]:
            problem = "the source makes another shard now, and the file is another"
            return Defect(name, problem, byte=byte)
        source = open_source(_pipeline(plan, good).source)
        begins = [source.provenance(record).offset for record in range(entry["samples"])]
    problem = "differs from the packed one"
    if len(one) != entry["bytes"]:
        problem += f": the file has {len(one)} bytes of {entry['bytes']}"
    before = sum(begin <= byte for begin in begins if begin is not None)
    return Defect(name, problem, max(0, before - 1) if None not in begins else None, byte)


def _compare_values(
    plan: Plan, reader: SampleReader, entry: Mapping[str, Any], path: Path
) -> Iterator[Defect]:
    """Yields the first record that is served other than it was packed."""
    name, pipeline = entry["name"], _pipeline(plan, path)
    expected = packed(plan, reader, entry["first"] // plan.per_shard, Report())
    with closing(open_source(pipeline.source)) as source:
        found = SampleReader(source, pipeline.transforms).samples(range(len(source)))
        for wanted, served in zip_longest(expected, found):
            if wanted is None or served is None:
                yield Defect(name, f"has another number of records than {entry['samples']}")
                return
            (index, values), (record, sample) = wanted, served
            problems = [f"cannot be read: {sample}"]
            if not isinstance(sample, str):
                differ = (field for field in values if bits(values[field]) != bits(sample[field]))
                problems = [f"field {field!r} is not the one of sample {index}" for field in differ]
            for problem in problems:
                yield Defect(name, problem, record, source.provenance(record).offset)
                return


def _pipeline(plan: Plan, shard: Path) -> Pipeline:
    """Returns the pipeline that serves a shard, as the command prints it."""
    lines = serve_lines(plan.options.format, plan.fields, str(shard))
    return parse({**yaml.safe_load("\n".join(lines)), "batch": 1})
