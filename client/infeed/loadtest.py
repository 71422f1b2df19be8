"""Load test of servers with simulated trainers:

    from infeed.loadtest import LoadPlan, run_load, summarize

    tally = run_load("127.0.0.1:7470", "photos", LoadPlan(trainers=8, step_ms=20))
    print(summarize(tally).verdict)

An installed package adds the names through the entry point group `infeed.loadtest`.
"""

from infeed.adapters import added_names

__getattr__, __dir__ = added_names(__name__)
