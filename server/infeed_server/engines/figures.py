"""Figures of an engine: what it has done so far, and what it holds now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infeed_server.engines.state_clock import STATES, StateSeconds
from infeed_server.sources.work import PythonWork


@dataclass(frozen=True)
class Figures:
    """Numbers for reports and metrics. An engine leaves out what it does not have."""

    queued_requests: int = 0
    """Requests on which no work has started."""
    window_bytes: int = 0
    """Bytes of batches that are kept for slower trainers."""
    cache_bytes: int = 0
    """Bytes of the samples in the pipeline's cache."""
    state_seconds: StateSeconds = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
    """Time in each state, summed over what runs in parallel."""
    python_work: PythonWork = field(default_factory=PythonWork)
    """Work of the user's Python code where samples are read."""
    sample_counts: Mapping[str, int] = field(default_factory=dict)
    """Samples by how the engine got them, with the names of `report.SAMPLE_COUNTS`."""
    pictures: Mapping[str, int] = field(default_factory=dict)
    """Pictures by decoder, `native` or `tensorflow`."""
    decoder: str = ""
    """The native decoder's share, or why TensorFlow decodes; empty without pictures."""
