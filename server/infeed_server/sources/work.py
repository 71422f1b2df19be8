"""The work of the user's Python code where samples are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PythonWork:
    """The work of the user's Python code so far."""

    workers: int = 0
    """Processes, or one thread; 0: there is no such code."""
    seconds: float = 0.0
    """Time that they worked, summed over them."""
    samples: int = 0
    """Samples that they read."""
    slowest_sample: int = 0
    slowest_seconds: float = 0.0
    """The slowest sample of late and its time; 0: unknown."""
