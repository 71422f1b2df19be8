"""JPEGs in TFRecord files of an object store, 30 ms away with 1 % errors, beside local files."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.photos import PATTERN, photo_folder
from tests.harness.server import InfeedServer
from tests.harness.spawned import SpawnedProcess, python_module
from tests.harness.tfrecords import example, write_records

import infeed

COPIES, SHARDS, BATCH = 4, 8, 32

DELAY_SECONDS, ERROR_RATE = 0.03, 0.01

PIPELINE = """
pipelines:
  photos:
    source: {{tfrecord: '{root}/*.tfrecord', features: {{image: bytes}}}}
    shuffle: {{seed: 1, mode: window}}
    transforms:
      {cache}
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [224, 224]}}
    batch: {{size: {batch}}}
"""


def compare(plan: Plan) -> list[Finding]:
    """Compares epochs of a store, behind a cold and a warm cache on disk, with local files."""
    rates: dict[str, list[float]] = {"local": [], "cold": [], "warm": []}
    requests = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = _write(folder / "data")
        for pair in range(plan.pairs):
            rates["local"].append(_epoch(folder, str(folder / "data"), {}, ""))
            cache = f"- cache: {{store: disk, path: {folder}/cache-{pair}}}"
            for state in ("cold", "warm"):
                with _store(folder) as (environment, counts):
                    rates[state].append(_epoch(folder, "s3://bench", environment, cache))
                if state == "cold":
                    requests.append(counts[0] / images)
    local, cold, warm = (Figures(name, values) for name, values in rates.items())
    return [
        Finding("images/s, warm", warm, local, Target(0.9)),
        Finding("images/s, cold", cold, local),
        Finding("requests per image", Figures("cold", requests), None),
    ]


def _write(folder: Path) -> int:
    """Writes the shards; returns the number of images."""
    folder.mkdir()
    photos = sorted(photo_folder().glob(PATTERN)) * COPIES
    for shard in range(SHARDS):
        part = photos[shard::SHARDS]
        records = (example({"image": [photo.read_bytes()]}) for photo in part)
        write_records(folder / f"{shard}.tfrecord", records)
    return len(photos)


@contextmanager
def _store(folder: Path) -> Iterator[tuple[Mapping[str, str], list[int]]]:
    """Yields the environment for a store in a process, and then its requests and bytes."""
    arguments = (str(folder / "data"), str(DELAY_SECONDS), str(ERROR_RATE))
    command = python_module("tests.harness.object_server", *arguments)
    log = folder / f"store-{time.time_ns()}"
    process = SpawnedProcess(command, log, reads_stdin=True)
    process.wait_until(lambda: process.stdout.endswith("\n"), "the store has its address")
    counts: list[int] = []
    environment = {
        "AWS_ENDPOINT_URL": process.stdout.strip(),
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "us-east-1",
    }
    yield environment, counts
    process.finish()
    counts += map(int, process.stdout.split()[1:])


def _epoch(folder: Path, root: str, environment: Mapping[str, str], cache: str) -> float:
    """Returns the images per second of an epoch, from its second batch on."""
    definition = folder / "pipelines.yaml"
    definition.write_text(PIPELINE.format(root=root, cache=cache, batch=BATCH))
    with mock.patch.dict(os.environ, environment):
        server = InfeedServer(definition, folder / f"log-{time.time_ns()}")
        with server, infeed.connect(server.address, "photos", epochs=1) as feed:
            steps = feed.steps_per_epoch or 0
            next(feed)
            begin = time.perf_counter()
            for _ in range(steps - 1):
                next(feed)
            return (steps - 1) * BATCH / (time.perf_counter() - begin)
