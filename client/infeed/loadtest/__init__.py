"""Load tests: simulated trainers that show how many real ones a fleet of servers can feed.

from infeed.loadtest import LoadPlan, run_load, summarize

tally = run_load("127.0.0.1:7470", "photos", LoadPlan(trainers=8, step_ms=20))
print(summarize(tally).verdict)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from infeed.loadtest.plan import LoadPlan

if TYPE_CHECKING:
    from infeed.loadtest.runner import run_load
    from infeed.loadtest.summary import Summary, summarize
    from infeed.loadtest.tally import Tally

_MODULES = {"run_load": "runner", "Summary": "summary", "summarize": "summary", "Tally": "tally"}


def __getattr__(name: str) -> Any:
    """Imports the rest on first use: other commands need the plan's options alone."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"infeed.loadtest.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'infeed.loadtest' has no attribute {name!r}")


__all__ = ["LoadPlan", "Summary", "Tally", "run_load", "summarize"]
