"""Rolling replacement of both servers, then of a pipeline's version, while trainers run.

The procedure is the one in docs/operations.md.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.nursery import Nursery
from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer
from tests.stress.chaos.job import Job
from tests.stress.chaos.trainer import Task

import infeed

WORLD, SLOTS = 2, 4
STEPS_BETWEEN = 4
"""Steps that every rank takes between two events."""

PIPELINE = """
  {name}:
    source: {{arrays: a.npz}}
    shuffle: {{seed: 17}}
    transforms:
      - random_resized_crop: {{field: image, size: [{size}, {size}]}}
    batch: {{size: 4}}
"""


@pytest.fixture
def definition(tmp_path: Path) -> Any:
    """Writes the pipelines of the given names; their images differ in size."""
    file, sizes = tmp_path / "pipelines.yaml", {"photos": 32, "photos-2": 48}
    images = np.random.default_rng(0).integers(0, 256, (100, 64, 64, 3), np.uint8)
    np.savez(tmp_path / "a.npz", image=images)

    def write(*names: str) -> Path:
        parts = [PIPELINE.format(name=name, size=sizes[name]) for name in names]
        file.write_text("pipelines:" + "".join(parts))
        return file

    return write


def advance(*jobs: Job) -> None:
    """Waits until every rank has taken more steps."""
    for job in jobs:
        goal = max(job.saved_steps) + STEPS_BETWEEN
        job.wait_until(lambda job=job, goal=goal: min(job.saved_steps) >= goal, "the job advances")


def roll(servers: list[InfeedServer], *jobs: Job) -> None:
    """Replaces one server after the other; the next goes once the one before serves."""
    for server in servers:
        assert server.terminate() == 0
        advance(*jobs)
        server.start()
        server.wait_until_serving()
        advance(*jobs)


@pytest.mark.slow
def test_servers_and_versions_are_replaced_without_a_lost_batch(
    definition: Any, nursery: Nursery, tmp_path: Path
) -> None:
    file = definition("photos")
    with ExitStack() as stack:
        servers = []
        for number in range(2):
            listen = stack.enter_context(ReservedPort()).address
            log = tmp_path / f"server-{number}"
            server = InfeedServer(file, log, listen=listen, launch=nursery.start)
            servers.append(stack.enter_context(server))
        first, second = servers
        target = f"{first.address},{second.address}"

        def start(pipeline: str, target: str, name: str, pause: float = 0.03) -> Job:
            task = Task(target, pipeline, WORLD, SLOTS, pause=pause, prefetch_bytes=200_000)
            return stack.enter_context(Job(tmp_path / name, task, nursery.start))

        def check(job: Job, pipeline: str, server: InfeedServer) -> None:
            """Checks that one server that is not disturbed makes the same batches."""
            job.end_after(max(job.saved_steps) + 1)
            steps = job.wait()
            undisturbed = start(pipeline, server.address, f"undisturbed-{pipeline}", 0)
            undisturbed.end_after(len(steps[0]))
            for rank, expected in zip(steps, undisturbed.wait(), strict=True):
                assert [(step.start, step.digest) for step in rank] == [
                    (step.start, step.digest) for step in expected
                ]

        old = start("photos", target, "old")
        advance(old)
        definition("photos", "photos-2")  # both versions, side by side
        roll([first], old)
        new = start("photos-2", target, "new")  # only the first server knows it
        advance(new)
        roll([second], old, new)
        check(old, "photos", first)
        definition("photos-2")
        roll(servers, new)
        check(new, "photos-2", second)
        with pytest.raises(infeed.PipelineNotFoundError, match="photos-2"):
            infeed.connect(target, "photos")
