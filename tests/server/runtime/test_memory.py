"""The allocator keeps what is freed."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from infeed_server.runtime.memory import keep_freed_memory

FAULTS = """
import resource, sys
import numpy as np
from infeed_server.runtime.memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def use():
    for _ in range(20):
        np.empty(2 << 20, np.uint8)[:] = 1
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """The page faults of using 2 MiB twenty times, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_memory_is_used_again() -> None:
    assert faults("kept") < 20 < 20 * 512 <= faults("given back") + 20 * 512


def test_no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()
