"""Load tests: simulated trainers that show how many real ones a fleet of servers can feed.

from infeed.loadtest import LoadPlan, run_load, summarize

tally = run_load("127.0.0.1:7470", "photos", LoadPlan(trainers=8, step_ms=20))
print(summarize(tally).verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import import_lazily
from infeed.loadtest.plan import LoadPlan

if TYPE_CHECKING:
    from infeed.loadtest.runner import run_load
    from infeed.loadtest.summary import Summary, summarize
    from infeed.loadtest.tally import Tally

_MODULES = {"run_load": "runner", "Summary": "summary", "summarize": "summary", "Tally": "tally"}

__all__ = ["LoadPlan", "Summary", "Tally", "run_load", "summarize"]

# Other commands need the plan's options alone.
__getattr__ = import_lazily(__name__, {k: f"{__name__}.{v}" for k, v in _MODULES.items()})
