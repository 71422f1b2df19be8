"""Load tests: simulated trainers that show how many real ones a fleet of servers can feed.

from infeed.loadtest import LoadPlan, run_load, summarize

tally = run_load("127.0.0.1:7470", "photos", LoadPlan(trainers=8, step_seconds=0.02))
print(summarize(tally).verdict)
"""

from infeed.loadtest.plan import Kill, LoadPlan, Stall, Thresholds
from infeed.loadtest.runner import run_load
from infeed.loadtest.summary import Summary, check, summarize
from infeed.loadtest.tally import Tally

__all__ = [
    "Kill",
    "LoadPlan",
    "Stall",
    "Summary",
    "Tally",
    "Thresholds",
    "check",
    "run_load",
    "summarize",
]
