"""A trainer that does what it is told.

    python -m tests.stress.soak.trainer TASK

TASK is JSON, see `Task`. It prints `ready` with its first batch, then takes batches as fast as
they come. Lines of standard input tell it what to do: `look` has it print a `Look` as JSON, `pause`
has it ask for no more batches until `go`. It ends with its standard input.
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

_REMEMBERED = 512
"""Batches whose digests a look tells."""


@dataclass(frozen=True)
class Task:
    """What to take."""

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
class Look:
    """A trainer at one moment."""

    steps: int
    state: dict[str, Any]
    digests: dict[str, int]
    """By position, of the last batches."""
    prefetched_bytes: int
    reconnects: int


def ask(trainer: SpawnedProcess) -> Look:
    """A look at a trainer."""
    trainer.send_line("look")
    return Look(**json.loads(trainer.read_line()))


def digest(batch: infeed.Batch) -> int:
    """Of the bits of a batch."""
    found = 0
    for name in sorted(batch):
        found = zlib.crc32(batch[name].reshape(-1).view("uint8"), found)
    return zlib.crc32(batch.sample_ids.tobytes(), found)


class Trainer:
    """Takes batches on the main thread, listens on another."""

    def __init__(self, feed: infeed.Feed) -> None:
        self._feed = feed
        self._go = threading.Event()
        self._go.set()
        self._digests: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._over = False
        self._lock = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while not self._over:
            self._go.wait()
            batch = self._feed.next()
            found = digest(batch)
            if not self._digests:
                print("ready", flush=True)
            with self._lock:
                self._digests.append((batch.start, found))

    def _listen(self) -> None:
        for line in sys.stdin:
            command = line.strip()
            if command == "pause":
                self._go.clear()
            elif command == "go":
                self._go.set()
            else:
                print(json.dumps(asdict(self._look())), flush=True)
        self._over = True
        self._go.set()

    def _look(self) -> Look:
        stats = self._feed.stats()
        with self._lock:
            digests = {str(start): found for start, found in self._digests}
        return Look(
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
