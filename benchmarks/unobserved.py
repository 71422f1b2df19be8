"""`infeed serve` without observation: python -m benchmarks.unobserved serve FILE ...

It keeps no totals and no states, and clients send it no reports, so comparing it with the usual
server shows what observation costs.
"""

from __future__ import annotations

from typing import Any

import infeed.cli
from infeed_observe.metrics import Metrics
from infeed_observe.observer import Observer
from infeed_server.engines.state_clock import StateClock
from infeed_server.rpc import batch_stream

_EVENTS = ("count", "measure")


def _ignore(*_: Any, **__: Any) -> None:
    """Observes nothing."""


def stop_observing() -> None:
    """Replaces everything that observes with nothing."""
    for name in _EVENTS:
        setattr(Metrics, name, _ignore)
    StateClock.update = _ignore  # type: ignore[method-assign]
    Observer.update = _ignore  # type: ignore[method-assign]
    batch_stream.REPORT_INTERVAL_SECONDS = 0.0  # type: ignore[attr-defined]


if __name__ == "__main__":
    stop_observing()
    infeed.cli.main()
