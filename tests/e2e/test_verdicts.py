"""Verdicts on built situations, with real servers: the cause, and whether what is advised helps."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.servers import delayed
from benchmarks.throttle import throttled
from tests.harness.command_line import CommandLine
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed
from infeed.stats import Stats

FUNCTIONS = '''
import time

import numpy as np
import tensorflow as tf


class Samples:
    """Samples that take `seconds` each to read."""

    fingerprint = "v1"

    def __init__(self, seconds, numbers=16):
        self.seconds, self.numbers = seconds, numbers

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return {"x": np.full([self.numbers], index, np.float32)}


def slow():
    return Samples(0.02)


def large():
    return Samples(0.02, numbers=25_000)


def break_some(sample):
    """Fails for one sample of eight, whose examination takes long."""
    if tf.executing_eagerly():
        time.sleep(0.4)
    good = tf.debugging.assert_greater(sample["x"] % 8, tf.constant(0, tf.int64))
    with tf.control_dependencies([good] if good is not None else []):
        return {"x": tf.identity(sample["x"])}


def in_order():
    def slowed(index):
        time.sleep(0.05)
        return np.float32(index)

    numbers = tf.data.Dataset.range(100_000)
    return numbers.map(
        lambda n: {"x": tf.ensure_shape(tf.numpy_function(slowed, [n], tf.float32), [])}
    )
'''

SLOW = "{source: {python: functions:slow}, batch: {size: 16}}"
EVEN = "{source: {python: functions:slow, processes: 4}, batch: {size: 16}}"
BAD = (
    "{source: {arrays: numbers.npz}, transforms: [{map: functions:break_some}], "
    "batch: {size: 8}, on_error: mask}"
)
SINGLE = "{source: {python: functions:large, processes: 8}, batch: {size: 1}}"
IN_ORDER = "{source: {dataset: functions:in_order}, batch: {size: 4}}"
PICTURES = "{source: {arrays: pictures.npz}, batch: {size: 8}}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    np.savez(tmp_path / "numbers.npz", x=np.arange(10_000))
    np.savez(tmp_path / "pictures.npz", image=np.zeros((64, 512, 512, 3), np.uint8))
    return tmp_path


@pytest.fixture
def serve(server_process: Callable[..., InfeedServer], data: Path) -> Callable[..., str]:
    """Starts a server of the pipeline `p`; returns its address."""

    def start(pipeline: str, *options: str) -> str:
        address: str = server_process(f"pipelines: {{p: {pipeline}}}\n", None, *options).address
        return address

    return start


def trained(address: str, *, step: float = 0.001, seconds: float = 4.5, **options: Any) -> Stats:
    """Returns the statistics of a training of so many seconds."""
    with infeed.connect(address, "p", **options) as feed:
        end = None
        for _ in feed:
            end = end or time.monotonic() + seconds
            if time.monotonic() > end:
                return feed.stats()
            time.sleep(step)
    raise AssertionError("an endless feed has ended")


def take_all(feed: infeed.Feed) -> None:
    with contextlib.suppress(infeed.FeedClosedError):
        for _ in feed:
            pass


def rate(stats: Stats) -> float:
    return stats.report.steps / stats.report.seconds


@pytest.mark.slow
def test_slow_python_data_set_needs_worker_processes(serve: Callable[..., str]) -> None:
    before = trained(serve(SLOW), step=0.02)
    assert before.assessment.cause == "Python workers", before
    assert before.assessment.servers is None
    assert "its Python worker was busy" in before.verdict
    (advised,) = re.findall(r"processes: (\d+)", before.verdict)
    # The workers wait, so that each brings its share also on a busy machine.
    after = trained(serve(EVEN.replace("4", advised)), step=0.02)
    assert rate(after) > 0.6 * int(advised) * rate(before), (before, after)


def test_data_set_that_one_server_reads_needs_no_other(serve: Callable[..., str]) -> None:
    verdict = trained(serve(IN_ORDER)).assessment
    assert (verdict.cause, verdict.servers) == ("data set", None)


@pytest.mark.slow
def test_bad_samples_that_hold_the_batches_are_named(serve: Callable[..., str]) -> None:
    stats = trained(serve(BAD), seconds=6.0)
    assert stats.assessment.cause == "bad samples", stats
    (report,) = stats.server_reports.values()
    assert report.repair_seconds > 0.5 * report.busy_seconds
    assert "the time for batches with bad samples" in stats.verdict


@pytest.mark.slow
def test_connection_that_is_ten_times_slower_is_named(serve: Callable[..., str]) -> None:
    address = serve(PICTURES)
    with throttled(address, 100e6) as fast, throttled(address, 10e6) as slow:
        stats = trained(f"{fast},{slow}", prefetch_batches=4)
    assert stats.assessment.cause == "slow connection", stats
    assert f"({slow} brought" in stats.verdict


@pytest.mark.slow
def test_memory_limit_that_keeps_workers_idle_is_named(serve: Callable[..., str]) -> None:
    before = trained(serve(SINGLE, "--memory-limit", "1"), prefetch_batches=16)
    assert before.assessment.cause == "server budget", before
    after = trained(serve(SINGLE), prefetch_batches=16)
    assert rate(after) > 1.5 * rate(before), (before, after)


@pytest.mark.slow
def test_job_on_a_slow_link_changes_no_verdict_on_another(serve: Callable[..., str]) -> None:
    address = serve(PICTURES, "--memory-limit", "64")
    with ExitStack() as stack:
        link = stack.enter_context(throttled(address, 10e6))
        far = stack.enter_context(delayed(address, 60.0))
        blocked = stack.enter_context(infeed.connect(link, "p", prefetch_batches=16))
        threading.Thread(target=take_all, args=(blocked,), daemon=True).start()
        before = trained(far, batch_size=1, prefetch_batches=2)
        assert before.assessment.cause == "round trip", before
        (report,) = before.server_reports.values()
        assert report.no_budget_seconds > 0.5 * report.seconds  # of the job on the slow link
        after = trained(far, batch_size=1, prefetch_batches=16)
        assert rate(after) > 2.5 * rate(before), (before, after)
        slow = trained(link, batch_size=1)
        assert slow.assessment.cause == "network rate", slow


@pytest.mark.slow
@pytest.mark.parametrize(("end", "seconds"), [("kill", 9), ("freeze", 20)])
def test_load_test_that_loses_a_server_names_it_first_and_fails(
    end: str,
    seconds: int,
    command_line: CommandLine,
    server_process: Callable[..., InfeedServer],
    data: Path,
) -> None:
    servers = [server_process(f"pipelines: {{p: {EVEN}}}\n") for _ in range(2)]
    addresses = [server.address for server in servers]
    options = ("--trainers", "1", "--duration", str(seconds), "--step-ms", "20")
    command = command_line.start("loadtest", ",".join(addresses), "p", *options, cwd=data)
    lost = servers[1]
    wait_until(lambda: "rank 0 of 1" in lost.log, "the trainer has begun")
    if end == "kill":
        lost.kill()
    else:
        lost.process.halt()
    assert command.wait() == 1, command.stdout + command.stderr
    first, second = command.stdout.splitlines()[:2]
    assert first.startswith(f"LOST: {lost.address} was lost by second ")
    assert "round trip" not in second
    assert f"MISSED: lost servers: {lost.address} was lost" in command.stdout
