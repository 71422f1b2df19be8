"""Server of a run, with its metrics."""

from __future__ import annotations

import re
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from benchmarks.resident import own_megabytes
from tests.harness.server import InfeedServer
from tests.stress.soak.curve import handle_counts

SAMPLES = 512
COLUMNS = ("server MB", "trainer MB", "unsent MB", "files", "threads", "trainer threads")
PIPELINES = """\
pipelines:
  large:                                 # batches of 9.6 MB
    source: {{arrays: {file}}}
    shuffle: {{seed: 17}}
    transforms:
      - random_flip_left_right: {{field: image}}
    batch: {{size: 64}}
  small:                                 # batches of 2.4 MB, 9.6 MB when finished
    source: {{arrays: {file}}}
    shuffle: {{seed: 17}}
    transforms:
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 16}}
"""


class Server:
    """`infeed serve` on two pipelines of the same images."""

    def __init__(self, address: str, http: str, pid: int) -> None:
        self.address = address
        self.pid = pid
        self._http = http

    def gauge(self, name: str) -> float:
        """Returns the sum of a metric over the pipelines, such as `unsent_bytes`."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=30) as response:
            text = response.read().decode()
        values = re.findall(rf"^infeed_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))

    def unsent_megabytes(self) -> float:
        return self.gauge("unsent_bytes") / 1e6

    def figures(self, trainer: int) -> list[float]:
        """Returns the figures of `COLUMNS`, of the server and of a trainer's process."""
        files, threads = handle_counts(self.pid)
        return [
            own_megabytes(self.pid),
            own_megabytes(trainer),
            self.unsent_megabytes(),
            files,
            threads,
            handle_counts(trainer)[1],
        ]


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    """Runs a server for the duration of the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image = np.random.default_rng(0).integers(0, 255, (SAMPLES, 224, 224, 3), np.uint8)
        np.savez(folder / "images.npz", image=image, label=np.arange(SAMPLES))
        definition = folder / "pipelines.yaml"
        definition.write_text(PIPELINES.format(file=folder / "images.npz"))
        with InfeedServer(definition, folder / "server", *options, http="127.0.0.1:0") as server:
            yield Server(server.address, server.http, server.pid)
