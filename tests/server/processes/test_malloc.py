"""Tests of `processes/malloc.py`."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from infeed_server.processes.malloc import keep_freed_memory

FAULTS = """
import resource, sys
import numpy as np
from infeed_server.processes.malloc import keep_freed_memory
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


def count_page_faults(how: str) -> int:
    """Uses 2 MiB twenty times in another process, and returns its page faults."""
    process = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(process.stdout)


def test_freed_memory_is_reused() -> None:
    assert count_page_faults("kept") < 20 < 20 * 512 <= count_page_faults("returned") + 20 * 512


def test_without_glibc_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()
