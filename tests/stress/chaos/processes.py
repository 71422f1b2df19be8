"""Python modules as processes of their own, with what they say in a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

PATIENCE_SECONDS = 180.0
"""For anything that a busy machine may take long for."""

_LAST_LINES = 12


class ChaosError(Exception):
    """The run could not go on; says why. Differences that it found are in its report instead."""


class Process:
    """`python -m MODULE WORDS...`, killed at the latest by `close`."""

    def __init__(self, module: str, words: tuple[str, ...], log: Path) -> None:
        self.name = log.stem
        self._log = log
        with log.open("ab") as out:
            self._begin = out.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
            )

    @property
    def status(self) -> int | None:
        """The exit status, that of a process ended by signal n being -n; None while it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """What this process has written so far, to both of its outputs."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    @property
    def last_words(self) -> str:
        return "\n".join(self.said.splitlines()[-_LAST_LINES:])

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens to a process that has ended."""
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit status. Raises `ChaosError` when the process runs on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        raise ChaosError(f"{self.name} still runs after {seconds:g} s: {self.last_words}")

    def kill(self) -> None:
        """As `kill -9`; returns when the process is gone."""
        self._process.kill()
        self._process.wait()

    close = kill


def until(
    condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS, every: float = 0.05
) -> None:
    """Waits; raises `ChaosError` that says what did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ChaosError(f"after {seconds:g} s still not: {what}")
        time.sleep(every)


__all__ = ["PATIENCE_SECONDS", "ROOT", "ChaosError", "Process", "until"]
