"""Graphs without Grappler's passes in quick runs: these take most of the time of a small graph.

`make test-all` has them, and so have the servers that tests start in processes of their own.
"""

from __future__ import annotations

import sys

import pytest

QUICK = "not slow"
"""The marks of `make test`."""


def pytest_collection_finish(session: pytest.Session) -> None:
    # Loaded by the modules of tests that need it, and by no other run.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and session.config.getoption("markexpr") == QUICK:
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
