"""Processor time and memory of this process and its children, and idle processors."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from infeed_observe import usage
from infeed_observe.usage import cpu_seconds, idle_seconds, resident_bytes

CHILD = """
import time
end = time.process_time() + 0.3
while time.process_time() < end: pass
held = b"x" * (64 << 20)
print(1, flush=True)
input()
"""


def test_work_of_this_process_counts() -> None:
    before, end = cpu_seconds(), time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert cpu_seconds() >= before + 0.09


def test_work_and_memory_of_children_count() -> None:
    seconds, memory = cpu_seconds(), resident_bytes()
    assert memory > 10 << 20
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert cpu_seconds() >= seconds + 0.25
    assert resident_bytes() >= memory + (60 << 20)
    child.communicate(b"\n")
    assert cpu_seconds() >= seconds + 0.25
    assert resident_bytes() < memory + (60 << 20)


def test_idle_time_is_that_of_the_processors_of_the_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_PROC", tmp_path)
    monkeypatch.setattr(usage, "_TICKS_PER_SECOND", 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 12})
    assert idle_seconds() is None
    (tmp_path / "stat").write_text(
        "cpu  1 1 1 9000 9000 0 0\n"
        "cpu0 1 1 1 500 500 7 7 7\n"
        "cpu1 1 1 1 300 20 7 7 7\n"
        "cpu12 1 1 1 1000 1 7 7 7\n"
        "\nintr 5 5 5\n"
    )
    assert idle_seconds() == pytest.approx(13.21)
