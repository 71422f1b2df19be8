"""Server under test: an `infeed serve` process, its pipelines, and its resources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from tests.harness.server import InfeedServer, Launch, spawn

import infeed
from infeed.rpc.channel import GrpcTransport

_PIPELINES = """
pipelines:
  numbers:
    source: {arrays: numbers.npz}
    shuffle: {seed: 3}
    batch: {size: 4, remainder: pad}
  photos:
    source: {images: photos}
    shuffle: {seed: 5}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [16, 16]}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 3}
  files:
    source: {images: photos}
    shuffle: {mode: none}
    batch: {size: 2}
  rows:
    source: {dataset: data:rows}
    batch: {size: 5, remainder: pad}
"""

_DATA = """
import tensorflow as tf

def few(n):
    return n % 16 != 3

def named(n):
    return {"n": n}

def rows():
    return tf.data.Dataset.range(64).filter(few).map(named)
"""

_MAX_EXTRA_MEGABYTES = 64
_MAX_EXTRA_THREADS = 64
"""Threads of batch sizes that are kept warm and that the warm-up may not have used."""
_MAX_EXTRA_FILES = 4

_SAMPLES = 48
_PHOTOS = 9

NAMES = ("numbers", "photos", "files", "rows")


@dataclass(frozen=True)
class ResourceUsage:
    """Resources of a process."""

    megabytes: float
    threads: int
    files: int

    def exceeds(self, before: ResourceUsage) -> bool:
        return (
            self.megabytes > before.megabytes + _MAX_EXTRA_MEGABYTES
            or self.threads > before.threads + _MAX_EXTRA_THREADS
            or self.files > before.files + _MAX_EXTRA_FILES
        )


@dataclass(frozen=True)
class ServerUnderTest:
    """Running server with several kinds of pipelines."""

    specs: dict[str, infeed.shared.spec.PipelineSpec]
    _server: InfeedServer

    @property
    def address(self) -> str:
        return self._server.address

    def resource_usage(self) -> ResourceUsage:
        proc = Path(f"/proc/{self._server.pid}")
        lines = (proc / "status").read_text().splitlines()
        fields = dict(line.split()[:2] for line in lines if len(line.split()) > 1)
        # Without file pages, such as libraries, which the kernel can evict.
        megabytes = int(fields["RssAnon:"]) * 1024 / 1e6
        return ResourceUsage(megabytes, int(fields["Threads:"]), len(list((proc / "fd").iterdir())))

    def errors_in_log(self) -> list[str]:
        """Returns the log's errors, which no peer may cause."""
        lines = self._server.log.splitlines()
        return [line for line in lines if re.search(r"Traceback|ERROR|CRITICAL", line)]


@contextmanager
def started(folder: Path, launch: Launch = spawn) -> Iterator[ServerUnderTest]:
    """Runs a server for the duration of the block, with its files in the folder."""
    _write_data(folder)
    with InfeedServer("pipelines.yaml", folder / "server", launch=launch) as server:
        transport = GrpcTransport(server.address)
        specs = {spec.name: spec for spec in transport.list_pipelines()}
        transport.close()
        yield ServerUnderTest(specs, server)


def _write_data(folder: Path) -> None:
    (folder / "pipelines.yaml").write_text(_PIPELINES)
    (folder / "data.py").write_text(_DATA)
    rng = np.random.default_rng(0)
    table = rng.integers(0, 1 << 30, (_SAMPLES, 7)).astype(np.float32)
    np.savez(folder / "numbers.npz", table=table, label=np.arange(_SAMPLES))
    (folder / "photos").mkdir()
    for number in range(_PHOTOS):
        height, width = rng.integers(20, 40, 2)
        picture = Image.fromarray(rng.integers(0, 255, (height, width, 3)).astype(np.uint8))
        picture.save(folder / f"photos/{number}.jpeg")
