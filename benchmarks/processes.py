"""Processes of a benchmark: they are told what to do, and answer, line by line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.process import ROOT
from tests.harness.spawned import SpawnedProcess, python_module
from tests.harness.waiting import HarnessError

PATIENCE = 120.0
"""Seconds that a process may take for one line."""


class BenchmarkError(HarnessError):
    """A benchmark cannot be run, or compares what cannot be compared."""


@contextmanager
def started(module: str, *words: str) -> Iterator[SpawnedProcess]:
    """Runs a Python module as a process for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        command = python_module(module, *words)
        with SpawnedProcess(command, Path(folder) / module, reads_stdin=True) as process:
            yield process


__all__ = ["PATIENCE", "ROOT", "BenchmarkError", "started"]
