"""Trainer process that is controlled over standard input.

    python -m tests.stress.soak.trainer TASK

TASK is JSON, see `Task`. Prints `ready` at its first batch, then takes batches at full speed.
Commands, one per line: `state` prints a `TrainerState` as JSON, `pause` stops taking batches, `go`
resumes. The process ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import zlib
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from tests.harness.spawned import SpawnedProcess

import infeed

_MAX_DIGESTS = 512
"""Number of last batches whose digests a `TrainerState` holds."""


@dataclass(frozen=True)
class Task:
    """Feed of a trainer."""

    address: str
    pipeline: str
    seed: int
    prefetch_bytes: int = 64 << 20

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def connect(self, state: dict[str, Any] | None = None) -> infeed.Feed:
        return infeed.connect(
            self.address,
            self.pipeline,
            seed=self.seed,
            prefetch_bytes=self.prefetch_bytes,
            state=state,
        )


@dataclass(frozen=True)
class TrainerState:
    """State of a trainer at one time."""

    steps: int
    state: dict[str, Any]
    digests: dict[str, int]
    """Digests of the last batches, by position."""
    prefetched_bytes: int
    reconnects: int


def query(trainer: SpawnedProcess) -> TrainerState:
    """Returns the trainer's state."""
    trainer.send_line("state")
    return TrainerState(**json.loads(trainer.read_line()))


def digest(batch: infeed.Batch) -> int:
    """Returns a checksum of the batch's bytes."""
    checksum = 0
    for name in sorted(batch):
        checksum = zlib.crc32(batch[name].reshape(-1).view("uint8"), checksum)
    return zlib.crc32(batch.sample_ids.tobytes(), checksum)


class Trainer:
    """Takes batches on the main thread, and reads commands on another."""

    def __init__(self, feed: infeed.Feed) -> None:
        self._feed = feed
        self._go = threading.Event()
        self._go.set()
        self._digests: deque[tuple[int, int]] = deque(maxlen=_MAX_DIGESTS)
        self._stopped = False
        self._lock = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._read_commands, daemon=True).start()
        while not self._stopped:
            self._go.wait()
            batch = self._feed.next()
            checksum = digest(batch)
            if not self._digests:
                print("ready", flush=True)
            with self._lock:
                self._digests.append((batch.start, checksum))

    def _read_commands(self) -> None:
        for line in sys.stdin:
            command = line.strip()
            if command == "pause":
                self._go.clear()
            elif command == "go":
                self._go.set()
            else:
                print(json.dumps(asdict(self._state())), flush=True)
        self._stopped = True
        self._go.set()

    def _state(self) -> TrainerState:
        stats = self._feed.stats()
        with self._lock:
            digests = {str(start): checksum for start, checksum in self._digests}
        return TrainerState(
            stats.steps,
            self._feed.state(),
            digests,
            stats.prefetched_bytes,
            stats.reconnects,
        )


def main() -> None:
    with Task(**json.loads(sys.argv[1])).connect() as feed:
        Trainer(feed).run()


if __name__ == "__main__":
    main()
