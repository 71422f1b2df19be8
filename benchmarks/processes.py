"""Processes of a benchmark: started, spoken to by lines, and gone when the block ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent

PATIENCE = 120.0
"""Seconds that a process may take for one line."""

_STOP_SECONDS = 10.0


class BenchmarkError(Exception):
    """A benchmark could not be run; says why."""


class Process:
    """A Python module as a process."""

    def __init__(self, module: str, words: tuple[str, ...], log: IO[str]) -> None:
        self._module, self._log = module, log
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, patience: float = PATIENCE) -> str:
        """The next line of its output. Raises `BenchmarkError` when it ends or waits instead."""
        assert self._process.stdout is not None
        late = threading.Timer(patience, self._process.kill)
        late.start()
        found = self._process.stdout.readline()
        is_late = not late.is_alive()
        late.cancel()
        if found:
            return found.strip()
        self._process.wait(_STOP_SECONDS)
        how = f"said nothing for {patience:g} s" if is_late else "ended"
        raise BenchmarkError(f"{self._module} {how}{self._last_words()}")

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def dismiss(self) -> None:
        """Ends its input, and waits until it has ended by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line for line in self._log.read().splitlines() if line.strip()]
        return ": " + "\n".join(lines[-8:]) if lines else ""


@contextmanager
def started(module: str, *words: str) -> Iterator[Process]:
    """A process for as long as the block lasts."""
    with tempfile.TemporaryFile("w+") as log:
        process = Process(module, words, log)
        try:
            yield process
        finally:
            process.stop()
