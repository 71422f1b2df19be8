"""Soak runs: memory, open files and threads stay flat while trainers work for minutes.

`make soak` runs them longer, and `-rP` shows the figures.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.resident import own_megabytes
from tests.harness.http_get import metric
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until
from tests.stress.chaos.job import Job
from tests.stress.chaos.trainer import Task, step_of

import infeed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SCALE = float(os.environ.get("INFEED_SOAK_SCALE", "1"))
"""Factor of all lengths; more takes longer, and finds slower leaks."""

STOP_SECONDS = 20 * SCALE
TIDY_TRAINERS = int(240 * SCALE)
BATCHES = int(4000 * SCALE)
SAMPLES = 50
"""Figures taken in a run."""

TOLERANCE = {"MB": 48.0, "files": 4.0, "threads": 4.0}
"""Growth that is no leak: a server keeps the memory of as many batches as were once in progress."""

WINDOW_BYTES = 64 << 20
"""Prefetch window of a trainer, without the finish transforms."""

OTHERS = 3
MIN_RATE = 0.2
"""Share of their rate that trainers keep beside a stopped one; other tests may run meanwhile."""

COMPARED_STEPS = 40
"""Steps compared after a stop: more than the trainer had prefetched before it."""

PIPELINES = """
pipelines:
  images:                                # batches of 2.4 MB, 9.6 MB when finished
    source: {{arrays: {folder}/images.npz}}
    shuffle: {{seed: 17}}
    transforms:
      - random_flip_left_right: {{field: image}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: 16}}
"""


@pytest.fixture
def server(nursery: Nursery, tmp_path: Path) -> Iterator[InfeedServer]:
    image = np.random.default_rng(0).integers(0, 255, (256, 224, 224, 3), np.uint8)
    np.savez(tmp_path / "images.npz", image=image, label=np.arange(256))
    definition = tmp_path / "pipelines.yaml"
    definition.write_text(PIPELINES.format(folder=tmp_path))
    log, http = tmp_path / "server", "127.0.0.1:0"
    limit = ("--memory-limit", "512")
    with InfeedServer(definition, log, *limit, http=http, launch=nursery.start) as running:
        yield running


class Curve:
    """Figures of the server and of this process, which is a trainer, over time."""

    def __init__(self, server: InfeedServer) -> None:
        self._pids = {"server": server.pid, "trainer": os.getpid()}
        self.rows: list[dict[str, float]] = []

    def sample(self) -> None:
        row = {}
        for name, pid in self._pids.items():
            row[f"{name} MB"] = own_megabytes(pid)
            row[f"{name} files"] = len([*Path(f"/proc/{pid}/fd").iterdir()])
            row[f"{name} threads"] = len([*Path(f"/proc/{pid}/task").iterdir()])
        self.rows.append(row)

    def check_flat(self) -> None:
        """Fails if the last fifth of a figure is above its second; the first is the start-up.

        What leaks is in every figure of a part, what will be freed is not in its least.
        """
        size = len(self.rows) // 5
        for name in self.rows[0]:
            values = [row[name] for row in self.rows]
            begin, end = min(values[size : 2 * size]), min(values[-size:])
            print(f"{name}: from {begin:.0f} to {end:.0f}, at most {max(values):.0f}")
            assert end - begin <= max(TOLERANCE[name.split()[1]], 0.05 * begin), name


def test_memory_is_flat_over_thousands_of_batches(server: InfeedServer) -> None:
    curve = Curve(server)
    with infeed.connect(server.address, "images", prefetch_bytes=WINDOW_BYTES) as feed:
        for step in range(BATCHES):
            feed.next(600)
            if step % (BATCHES // SAMPLES) == 0:
                curve.sample()
    curve.check_flat()


def test_memory_is_flat_while_trainers_come_and_go(server: InfeedServer) -> None:
    """Feeds are closed after three batches, or before the first, or dropped without `close`."""
    curve = Curve(server)
    for number in range(TIDY_TRAINERS):
        feed = infeed.connect(server.address, "images", seed=number, prefetch_bytes=WINDOW_BYTES)
        for _ in range((3, 0, 1)[number % 3]):
            feed.next(600)
        if number % 3 < 2:
            feed.close()
        del feed
        if number % (TIDY_TRAINERS // SAMPLES) == 0:
            curve.sample()
    curve.check_flat()
    wait_until(lambda: metric(server.http, "infeed_streams") == 0, "all streams are closed")


def test_stopped_trainer_costs_its_window_alone(
    server: InfeedServer, nursery: Nursery, tmp_path: Path
) -> None:
    """A trainer is halted, another one does not call `next`: both get the same batches afterwards,
    and a halted one that is killed leaves nothing at the server."""
    task = Task(server.address, "images", 1, 16, prefetch_bytes=WINDOW_BYTES)
    # Of another seed: the server keeps shared batches for a stopped trainer, and for an idle one,
    # in half of its memory limit, which is small here, so that it is full before.
    job = replace(task, world_size=OTHERS, seed=1)
    with (
        Job(tmp_path / "others", job, nursery.start) as others,
        Job(tmp_path / "victim", task, nursery.start) as victim,
        infeed.connect(server.address, "images", prefetch_bytes=WINDOW_BYTES) as idle,
    ):
        first = idle.next(600)
        (rank,) = victim.ranks
        victim.wait_until(lambda: victim.saved_steps[0] >= COMPARED_STEPS, "the trainer has begun")
        before = _rates(others)
        memory = own_megabytes(server.pid)
        rank.halt()
        curve = Curve(server)
        during = _rates(others, curve)
        curve.check_flat()
        unsent = metric(server.http, "infeed_unsent_bytes") / 1e6
        grown = own_megabytes(server.pid) - memory
        print(f"steps/s {before:.1f} -> {during:.1f}, server +{grown:.0f} MB, unsent {unsent:.0f}")
        assert grown <= unsent + TOLERANCE["MB"]
        assert during >= MIN_RATE * before
        rank.signal(signal.SIGCONT)
        end = victim.saved_steps[0] + COMPARED_STEPS
        victim.wait_until(lambda: victim.saved_steps[0] >= end, "it continues")
        rank.halt()
        steps = victim.committed_steps()[0]
        batches = [first, *(idle.next(600) for _ in steps[1:])]
        for batch, step in zip(batches, steps, strict=True):
            assert step_of(batch, {}, 0.0).digest == step.digest
        others.close()
        idle.close()
        rank.kill()
        for name in ("infeed_streams", "infeed_unsent_bytes"):
            wait_until(lambda name=name: metric(server.http, name) == 0, f"{name} is 0")


def _rates(job: Job, curve: Curve | None = None) -> float:
    """Returns the steps per second of the slowest rank in `STOP_SECONDS`."""
    begin, steps = time.monotonic(), job.saved_steps
    for _ in range(SAMPLES):
        time.sleep(STOP_SECONDS / SAMPLES)
        if curve is not None:
            curve.sample()
    job.check()
    seconds = time.monotonic() - begin
    return min(b - a for a, b in zip(steps, job.saved_steps, strict=True)) / seconds
