"""Trainer process that takes batches, discards them, and prints its measurements.

    python -m benchmarks.consume TASK

TASK is JSON, see `Task`. Prints `warm` after the warm-up, keeps taking batches, and reads from
standard input the window to measure, as two times of the monotonic clock. Then prints a `Run` as
JSON and stays idle until its standard input ends.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.consumers import KINDS, Batches
from benchmarks.resident import resident_megabytes

WARM_UP_BATCHES = 4

_CLOSE_TIMEOUT_SECONDS = 5.0
"""Maximum time to close a feed: TensorFlow's shutdown can take long."""


@dataclass(frozen=True)
class Task:
    """Feed of a trainer, and its warm-up."""

    kind: str
    """One of `consumers.KINDS`."""
    address: str
    dataset: str
    compression: str = "none"
    """Compression of tf.data service: none or auto."""
    seed: int = 0
    """Seed of an infeed pipeline; unique per trainer, so that no batch is served from a cache."""
    warm_up: float = 1.0
    """Uncounted seconds at the start; at least `WARM_UP_BATCHES` batches go uncounted."""
    is_busy: bool = False
    """Whether a Python thread that never waits, like a training loop, runs beside the consumer."""

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Run:
    """Measurements of a trainer over its window."""

    seconds: float
    cpu_seconds: float
    """Processor time of the trainer's process, all threads."""
    images: float
    bytes: float
    bytes_per_image: float
    """From the first batch: a short run may have no other."""
    first_batch_seconds: float
    """Time from the call that connects, after imports and graph construction."""
    idle_megabytes: float
    """The process's memory before it connected."""


class Window:
    """Measured time span, sent by the parent process once every trainer is warm."""

    def __init__(self) -> None:
        self.begin = self.end = math.inf
        threading.Thread(target=self._read_stdin, daemon=True).start()

    def _read_stdin(self) -> None:
        if line := sys.stdin.readline():
            self.begin, self.end = map(float, line.split())


class Measurement:
    """Batch count and processor time of a window."""

    def __init__(self, batches: Batches, window: Window) -> None:
        """Takes batches until the window ends."""
        self._times, self._cpu = [time.monotonic()], [time.process_time()]
        while self._times[-1] < window.end:
            next(batches)
            if self._times[-1] < window.begin:  # Only the last point before the window is needed.
                self._times.clear()
                self._cpu.clear()
            self._times.append(time.monotonic())
            self._cpu.append(time.process_time())
        self._window = window

    @property
    def batches(self) -> float:
        """Batches in the window, interpolated: each of sixteen trainers may get only a few."""
        return self._interpolate(list(range(len(self._times))))

    @property
    def cpu_seconds(self) -> float:
        return self._interpolate(self._cpu)

    def _interpolate(self, values: list[float] | list[int]) -> float:
        first, last = np.interp([self._window.begin, self._window.end], self._times, values)
        return float(last - first)


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    batches = KINDS[task.kind](task.address, task.dataset, task.compression, task.seed)
    if task.is_busy:
        threading.Thread(target=_work, daemon=True).start()
    idle = resident_megabytes(os.getpid())
    begin = time.monotonic()
    first = np.asarray(next(batches))
    first_batch = time.monotonic() - begin
    images, payload = len(first), first.nbytes
    del first
    _warm_up(batches, task.warm_up)
    window = Window()
    print("warm", flush=True)
    measured = Measurement(batches, window)
    run = Run(
        seconds=window.end - window.begin,
        cpu_seconds=measured.cpu_seconds,
        images=measured.batches * images,
        bytes=measured.batches * payload,
        bytes_per_image=payload / images,
        first_batch_seconds=first_batch,
        idle_megabytes=idle,
    )
    print(json.dumps(asdict(run)), flush=True)
    sys.stdin.read()
    _close_and_exit(batches)


def _work() -> None:
    while True:
        sum(range(1000))


def _warm_up(batches: Batches, seconds: float) -> None:
    end, count = time.monotonic() + seconds, 0
    while count < WARM_UP_BATCHES or time.monotonic() < end:
        next(batches)
        count += 1


def _close_and_exit(batches: Batches) -> None:
    """Closes the connection, as a trainer does at its end, and exits after a bounded time."""
    timer = threading.Timer(_CLOSE_TIMEOUT_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
    batches.close()  # type: ignore[attr-defined]
    os._exit(0)


if __name__ == "__main__":
    main()
