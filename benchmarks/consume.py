"""One trainer, in a process of its own: takes batches, does nothing with them, tells its figures.

    python -m benchmarks.consume TASK

TASK is JSON, see `Task`. It prints `warm` once it is, goes on taking batches, and reads from
standard input when to count, as two times of the monotonic clock. It then prints a `Run` as JSON
and lives on, asking for nothing, until its standard input ends.
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

_CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Task:
    """What a trainer is to take."""

    kind: str
    """One of `consumers.KINDS`."""
    address: str
    dataset: str
    compression: str = "none"
    """Of tf.data service: none or auto."""
    seed: int = 0
    """Of an infeed pipeline; no two trainers share one, so that none gets what another did."""
    warm_up: float = 1.0
    """Seconds that are not counted; nor are the first `WARM_UP_BATCHES`, however quick."""

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Run:
    """What a trainer got while it counted."""

    seconds: float
    cpu_seconds: float
    """Of the trainer's process, all threads."""
    images: float
    bytes: float
    first_batch_seconds: float
    """From the call that connects; importing and building a graph is over then."""
    idle_megabytes: float
    """Of its own memory before it connected."""


class Window:
    """The times between which to count, told by the parent once every trainer is warm."""

    def __init__(self) -> None:
        self.begin = self.end = math.inf
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        if line := sys.stdin.readline():
            self.begin, self.end = map(float, line.split())


class Tally:
    """The batches and the processor time, each as a function of the time."""

    def __init__(self, batches: Batches, window: Window) -> None:
        """Takes batches until the window is over."""
        self._times, self._cpu = [time.monotonic()], [time.process_time()]
        while self._times[-1] < window.end:
            next(batches)
            if self._times[-1] < window.begin:  # Only the last before the window is of use.
                self._times.clear()
                self._cpu.clear()
            self._times.append(time.monotonic())
            self._cpu.append(time.process_time())
        self._window = window

    @property
    def batches(self) -> float:
        """In the window, interpolated: of sixteen trainers each may get but a few."""
        return self._within(list(range(len(self._times))))

    @property
    def cpu_seconds(self) -> float:
        return self._within(self._cpu)

    def _within(self, values: list[float] | list[int]) -> float:
        first, last = np.interp([self._window.begin, self._window.end], self._times, values)
        return float(last - first)


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    batches = KINDS[task.kind](task.address, task.dataset, task.compression, task.seed)
    idle = resident_megabytes(os.getpid())
    begin = time.monotonic()
    first = np.asarray(next(batches))
    first_batch = time.monotonic() - begin
    images, payload = len(first), first.nbytes
    del first
    _warm_up(batches, task.warm_up)
    window = Window()
    print("warm", flush=True)
    tally = Tally(batches, window)
    run = Run(
        seconds=window.end - window.begin,
        cpu_seconds=tally.cpu_seconds,
        images=tally.batches * images,
        bytes=tally.batches * payload,
        first_batch_seconds=first_batch,
        idle_megabytes=idle,
    )
    print(json.dumps(asdict(run)), flush=True)
    sys.stdin.read()
    _leave(batches)


def _warm_up(batches: Batches, seconds: float) -> None:
    end, count = time.monotonic() + seconds, 0
    while count < WARM_UP_BATCHES or time.monotonic() < end:
        next(batches)
        count += 1


def _leave(batches: Batches) -> None:
    """Lets the server know, as a trainer does that ends; TensorFlow's own end can take long."""
    late = threading.Timer(_CLOSE_SECONDS, os._exit, [0])
    late.daemon = True
    late.start()
    batches.close()  # type: ignore[attr-defined]
    os._exit(0)


if __name__ == "__main__":
    main()
