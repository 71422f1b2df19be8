"""A trainer's rate before, during and after floods of frames, on a server.

    python -m tests.stress.floods [KIND ...]

Each figure is a rate divided by the rate before the flood. The attacker is a process on the same
machine; `no flood` shows what such a process costs the trainer if it only computes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from tests.harness.server import InfeedServer
from tests.stress.floods.attacker import CPU_ONLY, KINDS

import infeed

_BEFORE_SECONDS = 3.0
_FLOOD_SECONDS = 3.0
_RECOVERY_SECONDS = 2.0
_AFTER_SECONDS = 2.0
MIN_RATIO = 0.7
"""Of the trainer's rate during a flood, and again from two seconds after it."""

_PIPELINES = "pipelines: {numbers: {source: {arrays: numbers.npz}, batch: {size: 64}}}\n"


class Trainer:
    """Reads batches on a thread, and counts them."""

    def __init__(self, address: str) -> None:
        self._feed = infeed.connect(address, "numbers", epochs=None)
        self._times: list[float] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def rate(self, begin: float, end: float) -> float:
        """Returns batches per second between two times."""
        return sum(begin <= each < end for each in self._times) / (end - begin)

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        self._feed.close()

    def _run(self) -> None:
        for _ in self._feed:
            self._times.append(time.monotonic())
            if self._stopping:
                return


def measure(address: str, kind: str) -> tuple[float, float, float, int]:
    """Returns the rate before, the ratios during and after a flood, and the connections made."""
    trainer = Trainer(address)
    time.sleep(_BEFORE_SECONDS)
    command = [sys.executable, "-m", "tests.stress.floods.attacker"]
    attacker = subprocess.Popen(
        [*command, address, kind, str(_FLOOD_SECONDS)], stdout=subprocess.PIPE, text=True
    )
    begin = time.monotonic()
    output, _ = attacker.communicate(timeout=60)
    end = time.monotonic()
    time.sleep(_RECOVERY_SECONDS + _AFTER_SECONDS)
    trainer.close()
    before = max(1.0, trainer.rate(begin - _BEFORE_SECONDS + 1, begin))
    during = trainer.rate(end - _FLOOD_SECONDS, end)
    after = trainer.rate(end + _RECOVERY_SECONDS, end + _RECOVERY_SECONDS + _AFTER_SECONDS)
    return before, during / before, after / before, int(output)


def main(
    kinds: Annotated[list[str] | None, typer.Argument(help="Kinds of floods.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each.")] = 1,
) -> None:
    """Prints the ratios; the exit status is 1 if they are too small."""
    names = kinds or [name + suffix for name in KINDS for suffix in _suffixes(name)]
    failed = False
    print("| flood | batches/s before | during | after | connections |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "numbers.npz", x=np.zeros((6400, 256), np.float32))
        (folder / "pipelines.yaml").write_text(_PIPELINES)
        with InfeedServer(folder / "pipelines.yaml", folder / "server", cwd=folder) as running:
            baseline = 1.0
            for kind in names:
                results = [measure(running.address, kind) for _ in range(rounds)]
                middle = [statistics.median(column) for column in zip(*results, strict=True)]
                before, during, after, connections = middle
                print(
                    f"| {kind} | {before:.0f} | {during:.2f} | {after:.2f} | {connections:.0f} |",
                    flush=True,
                )
                if kind == CPU_ONLY:
                    baseline = during
                failed |= min(during / baseline, after) < MIN_RATIO
    sys.exit(failed)


def _suffixes(name: str) -> tuple[str, ...]:
    return ("",) if name == CPU_ONLY else ("", " in a call")


if __name__ == "__main__":
    typer.run(main)
