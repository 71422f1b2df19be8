"""Rolling replacement of both servers, then of a pipeline's version, while trainers run.

The procedure is the one in docs/operations.md. `pytest -rP` shows the longest stalls.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.nursery import Nursery
from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed

WORLD, SLOTS, SAMPLES = 2, 4, 100
STEPS_BETWEEN = 12
"""Steps that every rank takes between two events."""

PACE_SECONDS = 0.01
"""Idle time of a rank after each step, so that the job does not use up the machine."""

PIPELINE = """
  {name}:
    source: {{arrays: a.npz}}
    shuffle: {{seed: 17}}
    transforms:
      - random_resized_crop: {{field: image, size: [{size}, {size}]}}
    batch: {{size: {slots}}}
"""


class Rank(threading.Thread):
    """One rank of a job: takes batches until `end`, and remembers a hash of each."""

    def __init__(self, target: str, pipeline: str, rank: int) -> None:
        super().__init__(name=f"{pipeline}-{rank}")
        self.end = threading.Event()
        self.error: BaseException | None = None
        self.digests: list[tuple[int, str]] = []
        """The first position of each batch, and the hash of its contents."""
        self.stats: infeed.Stats | None = None
        self._arguments = (target, pipeline)
        self._shard = infeed.Shard(rank, WORLD)

    def run(self) -> None:
        try:
            with infeed.connect(
                *self._arguments, shard=self._shard, timeout=300, prefetch_batches=4
            ) as feed:
                while not self.end.wait(PACE_SECONDS):
                    self.digests.append(digest(next(feed)))
                self.stats = feed.stats()
        except BaseException as error:  # noqa: BLE001 - raised by `advance`
            self.error = error


class Job:
    """All ranks of a pipeline's job."""

    def __init__(self, target: str, pipeline: str) -> None:
        self.pipeline = pipeline
        self.ranks = [Rank(target, pipeline, rank) for rank in range(WORLD)]
        for item in self.ranks:
            item.start()

    def advance(self) -> None:
        """Waits until every rank has taken more steps."""
        goals = [len(item.digests) + STEPS_BETWEEN for item in self.ranks]
        wait_until(
            lambda: all(
                item.error or len(item.digests) >= goal
                for item, goal in zip(self.ranks, goals, strict=True)
            ),
            f"the job on {self.pipeline} advances",
        )
        for rank in self.ranks:
            if rank.error:
                raise rank.error

    def stop(self) -> None:
        for item in self.ranks:
            item.end.set()
        for rank in self.ranks:
            rank.join()

    def check(self, reference: str) -> None:
        """Checks each batch of each rank: none missing, repeated, out of order, or with other bits
        than the batches of one server that was not disturbed."""
        for number, item in enumerate(self.ranks):
            assert item.error is None
            starts = [(step * WORLD + number) * SLOTS for step in range(len(item.digests))]
            assert [start for start, _ in item.digests] == starts
            shard = infeed.Shard(number, WORLD)
            with infeed.connect(reference, self.pipeline, shard=shard) as feed:
                for _, found in zip(range(2 * STEPS_BETWEEN), item.digests, strict=False):
                    assert digest(next(feed)) == found
            assert item.stats is not None
            print(
                f"{self.pipeline} rank {number}: {len(item.digests)} steps, longest wait "
                f"{item.stats.wait_max_seconds:.2f} s, {item.stats.hedges} hedges"
            )


def digest(batch: infeed.Batch) -> tuple[int, str]:
    content = hashlib.sha256(batch.sample_ids.tobytes())
    for name in sorted(batch):
        content.update(batch[name].tobytes())
    return int(batch.start), content.hexdigest()


def roll(servers: list[InfeedServer], *jobs: Job) -> None:
    """Replaces one server after the other; the next goes once the one before serves."""
    for server in servers:
        assert server.terminate() == 0
        for job in jobs:
            job.advance()
        server.start()
        server.wait_until_serving()
        for job in jobs:
            job.advance()


@pytest.fixture
def definition(tmp_path: Path) -> Any:
    """Writes the pipelines of the given names; their images differ in size."""
    file, sizes = tmp_path / "pipelines.yaml", {"photos": 32, "photos-2": 48}
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 64, 64, 3), np.uint8)
    np.savez(tmp_path / "a.npz", image=images)

    def write(*names: str) -> Path:
        parts = [PIPELINE.format(name=name, size=sizes[name], slots=SLOTS) for name in names]
        file.write_text("pipelines:" + "".join(parts))
        return file

    return write


@pytest.fixture
def jobs() -> Any:
    """A list of jobs, which end with the test."""
    running: list[Job] = []
    yield running
    for item in running:
        item.stop()


def test_servers_and_versions_are_replaced_without_a_lost_batch(
    definition: Any, jobs: list[Job], nursery: Nursery, tmp_path: Path
) -> None:
    file = definition("photos")
    with ExitStack() as stack:
        servers = []
        for number in range(2):
            listen = stack.enter_context(ReservedPort()).address
            log = tmp_path / f"server-{number}"
            server = InfeedServer(file, log, listen=listen, launch=nursery.start)
            servers.append(stack.enter_context(server))
        target = ",".join(server.address for server in servers)
        jobs.append(old := Job(target, "photos"))
        old.advance()

        roll(servers, old)  # the same pipelines, as for another image or machine

        definition("photos", "photos-2")  # both versions, side by side
        first, second = servers
        roll([first], old)
        jobs.append(new := Job(target, "photos-2"))  # only the first server knows it
        new.advance()
        roll([second], old, new)

        old.stop()
        old.check(first.address)
        definition("photos-2")
        roll(servers, new)
        new.stop()
        new.check(second.address)
        with pytest.raises(infeed.PipelineNotFoundError, match="photos-2"):
            infeed.connect(target, "photos")
