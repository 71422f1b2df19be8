"""The work done by the user's Python code in reading samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PythonWork:
    """The work done so far by the user's Python code."""

    workers: int = 0
    """Number of processes, or one thread; 0: there is no such code."""
    seconds: float = 0.0
    """Time that they were busy, in total."""
    samples: int = 0
    """Samples that they read."""
    slowest_sample: int = 0
    slowest_seconds: float = 0.0
    """The slowest recent sample and its time; 0: unknown."""
