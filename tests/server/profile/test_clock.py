"""Clocks and rounds: CPU time of worker processes counts, and a disturbed round does not."""

from __future__ import annotations

import subprocess
import sys
from itertools import count

from infeed_server.profile.clock import Clock, host_cpu_seconds, total_cpu_seconds
from infeed_server.profile.timing import median_cost


def test_cpu_time_of_a_child_process_is_in_the_total() -> None:
    code = (
        "import sys, time\n"
        "while time.process_time() < 0.3:\n"
        "    pass\n"
        "print('done', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        before = Clock().cpu()
        assert child.stdout.readline() == b"done\n"
        assert total_cpu_seconds() - before > 0.25
        child.communicate()


def test_cpu_time_of_the_host_is_at_least_that_of_this_process() -> None:
    assert host_cpu_seconds() > 0


def test_median_leaves_out_a_disturbed_round() -> None:
    wall = count()
    cpu = iter([0.0, 1.0, 0.0, 9.0, 0.0, 1.0])
    clock = Clock(wall=lambda: float(next(wall)), cpu=lambda: next(cpu))
    cost = median_cost(clock, lambda: 10, seconds=0.0)
    assert cost.cpu == 0.1
