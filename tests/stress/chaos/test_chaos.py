"""Chaos runs: equal batches and each sample once an epoch, despite server faults and kills."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.harness.nursery import Nursery
from tests.harness.proxies import INSTALLED
from tests.stress.chaos import pipelines
from tests.stress.chaos.server_faults import run_server_faults
from tests.stress.chaos.trainer_kills import run_trainer_kills

SEED = 4

QUICK_SEED = 2171
"""Draws each kind of event in ten, and only short freezes and stalls."""


@pytest.fixture
def served(photos: SimpleNamespace, tmp_path: Path) -> pipelines.ServedPipeline:
    return pipelines.photos(tmp_path, photos.folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundred_server_faults_leave_batches_equal(
    served: pipelines.ServedPipeline, tmp_path: Path
) -> None:
    result = run_server_faults(served, tmp_path, SEED, 100, 4.0)
    assert result.equal == result.batches
    assert (result.audit.lost, result.audit.repeated) == (0, 0)
    assert result.unclean == 0
    assert result.exact


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_leave_samples_equal(served: pipelines.ServedPipeline, tmp_path: Path) -> None:
    result = run_trainer_kills(served, tmp_path, SEED, 20)
    assert result.samples_equal == result.audit.samples
    assert (result.audit.lost, result.audit.repeated) == (0, 0)
    assert len({generation.world_size for generation in result.generations}) > 1
    assert len({generation.batch_size for generation in result.generations}) > 1
    assert result.exact


def test_each_kind_of_fault_leaves_batches_equal(nursery: Nursery, tmp_path: Path) -> None:
    served = pipelines.arrays(tmp_path)
    result = run_server_faults(served, tmp_path, QUICK_SEED, 10, 0.6, nursery.start)
    assert result.exact, result
    assert min(result.events.values()) >= 1, result.events
    assert result.resets >= 1
    assert result.unclean == 0


@pytest.mark.slow
@pytest.mark.skipif("nginx" not in INSTALLED, reason="nginx is not installed")
def test_faults_behind_a_proxy_leave_batches_equal(nursery: Nursery, tmp_path: Path) -> None:
    served = pipelines.arrays(tmp_path)
    result = run_server_faults(served, tmp_path, QUICK_SEED, 10, 0.6, nursery.start, "nginx")
    assert result.exact, result
    assert result.unclean == 0


def test_four_kills_leave_samples_equal(nursery: Nursery, tmp_path: Path) -> None:
    result = run_trainer_kills(pipelines.arrays(tmp_path), tmp_path, SEED, 4, nursery.start)
    assert result.exact, result
