"""Schedule, committed steps and sample counts of the chaos runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from tests.harness.process import Process
from tests.stress.chaos.job import Audit, Job, audit
from tests.stress.chaos.schedule import PROXIED, SERVERS, FaultKind, draw_schedule
from tests.stress.chaos.trainer import Step, Task, save

COUNT = 6


def step(start: int, ids: list[int], mask: list[bool] | None = None) -> Step:
    samples = [f"sample {index}" for index in ids]
    return Step(start, ids, mask or [True] * len(ids), samples, "digest", {}, 0.0)


EPOCHS = [step(0, [3, 1, 2, 0]), step(4, [5, 4, 0, 1]), step(8, [2, 3, 5, 4])]


@pytest.mark.parametrize(
    ("steps", "epochs", "expected", "exact"),
    [
        (EPOCHS, 2, Audit(2, 12, 0, 0), True),
        (EPOCHS[:2], 1, Audit(1, 6, 0, 0), True),
        ([*EPOCHS, EPOCHS[1]], 2, Audit(2, 16, 0, 4), False),
        (EPOCHS[:2], 2, Audit(2, 8, 4, 0), False),
        ([*EPOCHS[:2], step(8, [2, 3, 5, 5])], 2, Audit(2, 12, 1, 1), False),
        ([*EPOCHS[:2], step(8, [2, 3, 5, -1], [True] * 3 + [False])], 2, Audit(2, 11, 1, 0), False),
        ([], 0, Audit(0, 0, 0, 0), False),
    ],
)
def test_lost_and_repeated_samples_are_counted(
    steps: list[Step], epochs: int, expected: Audit, exact: bool
) -> None:
    found = audit(steps, COUNT, epochs)
    assert (found, found.exact) == (expected, exact)


def test_step_saved_by_every_rank_is_committed(tmp_path: Path) -> None:
    def launch(arguments: Sequence[str], folder: Path, cwd: Path) -> Process:
        for number, saved in enumerate(EPOCHS[: 3 if folder.name == "rank-0" else 2]):
            save(asdict(saved), folder / f"{number:08}.json")
        save({"hedges": 1}, folder / "stats")
        (folder / "00000003.part").write_text("{")  # a rank was killed while saving
        return cast("Any", None)

    job = Job(tmp_path, Task("", "", world_size=2, batch_size=4), launch)
    assert job.saved_steps == [3, 2]
    assert job.committed_steps() == [EPOCHS[:2], EPOCHS[:2]]
    assert job.stats() == [{"hedges": 1}] * 2


@pytest.mark.parametrize("seed", range(20))
def test_events_of_a_seed_apply_in_their_order(seed: int) -> None:
    events = draw_schedule(seed, 100, 4.0, 1000)
    assert events == draw_schedule(seed, 100, 4.0, 1000) != draw_schedule(99, 100, 4.0, 1000)
    down: set[int] = set()
    for event in events:
        assert (event.kind is FaultKind.RESTART) == (event.server in down)
        assert event.pause == 0 or len(down) < SERVERS
        if event.kind in (FaultKind.STALL, FaultKind.RESET):
            assert event.server == PROXIED
        if event.kind in (FaultKind.KILL, FaultKind.TERMINATE):
            down.add(event.server)
        elif event.kind is FaultKind.RESTART:
            down.remove(event.server)
