"""Record index of a million small records, compared with reading the file once.

    python -m benchmarks.records write|index|iterate FILE

Each role runs in its own process and prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.processes import started
from benchmarks.resident import peak_megabytes, reset_peak

RECORDS = 1_000_000

_PEER = "tf.data.TFRecordDataset"


def compare(plan: Plan) -> list[Finding]:
    """Builds, loads and iterates in turn; the file stays in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "small.tfrecord"
        _run("write", file)
        built, loaded, iterated = [], [], []
        for _ in range(plan.pairs + 1):
            for cached in file.parent.glob("*.npz"):
                cached.unlink()
            built.append(_run("index", file))
            loaded.append(_run("index", file))
            iterated.append(_run("iterate", file))
        on_disk = sum(cached.stat().st_size for cached in file.parent.glob("*.npz")) / 1e6
        data = file.stat().st_size / 1e6
    del built[0], loaded[0], iterated[0]
    about = f"{RECORDS:,} records, {data:.0f} MB; {on_disk:.1f} MB of index on disk"
    cache = "from the index cache beside the file"
    seconds = Target(10.0, "at most", "figure", is_aim=True)
    megabytes = Target(32.0, "at most", "figure", is_aim=True)
    ours, cached_index = Side("infeed", built), Side("infeed", loaded)
    theirs = Side(_PEER, iterated)
    return [
        Finding("s to build", ours("seconds"), theirs("seconds"), seconds, False, about),
        Finding("s to load", cached_index("seconds"), theirs("seconds"), None, False, cache),
        Finding("MB held", ours("held"), None, megabytes, False, "arrays of the index"),
        Finding("MB peak growth", ours("peak"), theirs("peak"), megabytes, False, "of the process"),
    ]


@dataclass(frozen=True)
class Side:
    """Runs of one role."""

    name: str
    runs: list[dict[str, float]]

    def __call__(self, key: str) -> Figures:
        return Figures(self.name, [run[key] for run in self.runs])


def _run(role: str, file: Path) -> dict[str, float]:
    with started("benchmarks.records", role, str(file)) as process:
        result: dict[str, float] = json.loads(process.read_line())
        return result


def write(file: str) -> dict[str, float]:
    """Writes records of 32 to 95 bytes, all different."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(file) as writer:
        for number in range(RECORDS):
            writer.write(b"%032d" % number + bytes(number % 64))
    return {}


def index(file: str) -> dict[str, float]:
    from infeed_formats.tfrecord.index import build_index
    from infeed_server.storage.files import list_files

    before = reset_peak()
    begin = time.perf_counter()
    built = build_index(list_files([file]))
    seconds = time.perf_counter() - begin
    assert len(built) == RECORDS
    held = sum(array.nbytes for array in (built.first, built.offsets, built.lengths)) / 1e6
    return {"seconds": seconds, "peak": peak_megabytes() - before, "held": held}


def iterate(file: str) -> dict[str, float]:
    """Reads all records at tf.data's full speed: batched, with the loop inside TensorFlow."""
    import tensorflow as tf

    before = reset_peak()
    begin = time.perf_counter()
    records = tf.data.TFRecordDataset(file).batch(1024)
    count = records.reduce(tf.constant(0, tf.int64), lambda n, batch: n + tf.size(batch, tf.int64))
    seconds = time.perf_counter() - begin
    assert int(count) == RECORDS
    return {"seconds": seconds, "peak": peak_megabytes() - before}


def main() -> None:
    role, file = sys.argv[1:]
    roles = {"write": write, "index": index, "iterate": iterate}
    print(json.dumps(roles[role](file)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
