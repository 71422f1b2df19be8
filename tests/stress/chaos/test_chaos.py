"""Whatever becomes of servers and trainers: the batches are the same, each sample once an epoch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.harness.nursery import Nursery
from tests.stress.chaos import pipelines
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.trainer_kills import run_trainer_kills

SEED = 4

QUICK_SEED = 2171
"""Draws each kind of event among ten, and none that lasts long."""


@pytest.fixture
def served(photos: SimpleNamespace, tmp_path: Path) -> pipelines.Served:
    return pipelines.photos(tmp_path, photos.folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_events(served: pipelines.Served, tmp_path: Path) -> None:
    found = run_server_faults(served, tmp_path, SEED, 100, 4.0)
    assert found.equal == found.batches
    assert (found.audit.lost, found.audit.repeated) == (0, 0)
    assert found.unclean == 0
    assert found.exact


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills(served: pipelines.Served, tmp_path: Path) -> None:
    found = run_trainer_kills(served, tmp_path, SEED, 20)
    assert found.samples_equal == found.audit.samples
    assert (found.audit.lost, found.audit.repeated) == (0, 0)
    assert len({one.world_size for one in found.generations}) > 1
    assert len({one.batch_size for one in found.generations}) > 1
    assert found.exact


def test_each_kind_of_event_leaves_batches_equal(nursery: Nursery, tmp_path: Path) -> None:
    served = pipelines.arrays(tmp_path)
    found = run_server_faults(served, tmp_path, QUICK_SEED, 10, 0.6, nursery.start)
    assert found.exact, found
    assert min(found.events.values()) >= 1, found.events
    assert found.resets >= 1
    assert found.unclean == 0


def test_a_few_kills_leave_samples_equal(nursery: Nursery, tmp_path: Path) -> None:
    found = run_trainer_kills(pipelines.arrays(tmp_path), tmp_path, SEED, 4, nursery.start)
    assert found.exact, found
