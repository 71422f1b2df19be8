"""Chaos runs: equal batches and each sample once an epoch, despite server faults and kills."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.harness.nursery import Nursery
from tests.stress.chaos import pipelines
from tests.stress.chaos.schedule import PROXIED, Event, draw_schedule
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.trainer_kills import run_trainer_kills

SEED = 4


@pytest.fixture
def served(photos: SimpleNamespace, tmp_path: Path) -> pipelines.ServedPipeline:
    return pipelines.photos(tmp_path, photos.folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundred_server_faults_leave_batches_equal(
    served: pipelines.ServedPipeline, tmp_path: Path
) -> None:
    events = draw_schedule(SEED, 100, 4.0, served.reset_bytes)
    result = run_server_faults(served, tmp_path, events)
    assert result["exact"], result
    assert result["unclean"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_leave_samples_equal(served: pipelines.ServedPipeline, tmp_path: Path) -> None:
    result = run_trainer_kills(served, tmp_path, SEED, 20)
    assert result["exact"], result
    for name in ("world_size", "batch_size"):
        assert len({generation[name] for generation in result["generations"]}) > 1


def test_each_kind_of_fault_leaves_batches_equal(nursery: Nursery, tmp_path: Path) -> None:
    events = [
        Event("stall", PROXIED, 0.1, seconds=0.5),
        Event("kill", 1, 0.1),
        Event("freeze", 2, 0.1, seconds=0.5),
        Event("reset", PROXIED, 0.1, bytes=5_000),
        Event("restart", 1, 0.1),
        Event("terminate", 2, 0.1),
        Event("restart", 2, 0.1),
    ]
    result = run_server_faults(pipelines.arrays(tmp_path), tmp_path, events, nursery.start)
    assert result["exact"], result
    assert result["resets"] >= 1
    assert result["unclean"] == 0


def test_two_kills_leave_samples_equal(nursery: Nursery, tmp_path: Path) -> None:
    result = run_trainer_kills(pipelines.arrays(tmp_path), tmp_path, SEED, 2, nursery.start)
    assert result["exact"], result
