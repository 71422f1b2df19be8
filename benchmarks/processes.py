"""Child processes of a benchmark, controlled over standard input and output, line by line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.process import ROOT
from tests.harness.spawned import SpawnedProcess, python_module
from tests.harness.waiting import HarnessError

LINE_TIMEOUT_SECONDS = 120.0
"""Maximum time to wait for one line of a process."""


class BenchmarkError(HarnessError):
    """Raised when a benchmark cannot run, or its two sides cannot be compared."""


@contextmanager
def started(module: str, *words: str) -> Iterator[SpawnedProcess]:
    """Runs a Python module as a process for the duration of the block."""
    with tempfile.TemporaryDirectory() as folder:
        command = python_module(module, *words)
        with SpawnedProcess(command, Path(folder) / module, reads_stdin=True) as process:
            yield process


__all__ = ["LINE_TIMEOUT_SECONDS", "ROOT", "BenchmarkError", "started"]
