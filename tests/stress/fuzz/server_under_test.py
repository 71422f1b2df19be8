"""The server that is fuzzed: `infeed serve` as a process, what it serves, and what it costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import infeed

ROOT = Path(__file__).resolve().parents[3]

START_SECONDS = 120.0
STOP_SECONDS = 30.0

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

_SAMPLES = 48
_PHOTOS = 9

NAMES = ("numbers", "photos", "files", "rows")


@dataclass(frozen=True)
class Cost:
    """What a process holds."""

    megabytes: float
    threads: int
    files: int

    def __str__(self) -> str:
        return f"{self.megabytes:.0f} MB, {self.threads} threads, {self.files} files"


@dataclass(frozen=True)
class ServerUnderTest:
    """A server that runs on pipelines of all kinds."""

    address: str
    specs: dict[str, infeed.spec.PipelineSpec]
    _process: subprocess.Popen[str]
    _log: Path

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def cost(self) -> Cost:
        proc = Path(f"/proc/{self._process.pid}")
        lines = (proc / "status").read_text().splitlines()
        told = {name: value.split()[0] for name, _, value in map(_split, lines) if value.strip()}
        # Not the pages of files, such as libraries, which the kernel can drop.
        megabytes = int(told["RssAnon"]) * 1024 / 1e6
        return Cost(megabytes, int(told["Threads"]), len(list((proc / "fd").iterdir())))

    def complaints(self) -> list[str]:
        """What the log says that a peer must never be able to make it say."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r"Traceback|ERROR|CRITICAL", line)]

    @property
    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")


@contextmanager
def started(folder: Path) -> Iterator[ServerUnderTest]:
    """A server for as long as the block lasts; its files are made in the folder."""
    _make_data(folder)
    log = folder / "server.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "infeed", "serve", "pipelines.yaml"),
                *("--listen", "127.0.0.1:0", "--http", "off"),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        )
        try:
            address = _address(process, log)
            link = infeed.transport.GrpcTransport(address)
            specs = {spec.name: spec for spec in link.list_pipelines()}
            link.close()
            yield ServerUnderTest(address, specs, process, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    late = threading.Timer(START_SECONDS, process.kill)
    late.start()
    line = process.stdout.readline()
    late.cancel()
    if not line.startswith("serving on "):
        raise RuntimeError(f"no server: {line!r}\n{log.read_text(errors='replace')}")
    return line.split()[2]


def _make_data(folder: Path) -> None:
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
