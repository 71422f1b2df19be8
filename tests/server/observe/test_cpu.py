"""Processor time of this process and of its children."""

from __future__ import annotations

import subprocess
import sys
import time

from infeed_server.observe.cpu import cpu_seconds

BURN = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass\n"


def test_work_of_this_process_counts() -> None:
    before, end = cpu_seconds(), time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert cpu_seconds() >= before + 0.09


def test_work_of_children_counts_while_they_run_and_afterwards() -> None:
    before = cpu_seconds()
    wait = "print(1, flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", BURN + wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert cpu_seconds() >= before + 0.25
    child.communicate(b"\n")
    assert cpu_seconds() >= before + 0.25
