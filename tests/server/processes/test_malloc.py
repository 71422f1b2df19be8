"""Tests of `processes/malloc.py`."""

from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource
import numpy as np
from infeed_server.processes.malloc import keep_freed_memory
assert keep_freed_memory()
def use():
    for _ in range(20):
        np.empty(2 << 20, np.uint8)[:] = 1
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_reused() -> None:
    command = [sys.executable, "-c", FAULTS]
    faults = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(faults) < 20  # of 20 times 512 pages
