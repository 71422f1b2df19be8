"""Tests of the ranks that a launcher or JAX tells, and of the warning about equal batches."""

from __future__ import annotations

import json
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import infeed
from infeed import ranks
from infeed.testing import FakeTransport


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets a warning of an earlier test, and the ranks of the process that runs the tests."""
    monkeypatch.setattr(ranks, "_has_warned", False)
    for names in ranks.LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("TF_CONFIG", raising=False)


def tf_config(**cluster: int) -> str:
    return json.dumps({"cluster": {job: ["host:1"] * count for job, count in cluster.items()}})


@pytest.mark.parametrize(
    ("environment", "evidence"),
    [
        ({}, ""),
        ({"RANK": "0", "WORLD_SIZE": "8"}, "WORLD_SIZE=8"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ""),
        ({"WORLD_SIZE": "8"}, ""),  # of something else: no process has a number
        ({"RANK": "0", "WORLD_SIZE": "many"}, ""),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, ""),  # one process: a batch script
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_SIZE=2"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2"),
        ({"TF_CONFIG": tf_config(worker=2)}, "TF_CONFIG has 2 workers"),
        ({"TF_CONFIG": tf_config(chief=1, worker=2, ps=1)}, "TF_CONFIG has 3 workers"),
        ({"TF_CONFIG": tf_config(worker=1, evaluator=1)}, ""),
        ({"TF_CONFIG": "{}"}, ""),
        ({"TF_CONFIG": "no JSON"}, ""),
    ],
)
def test_launchers_tell_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], evidence: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ranks.evidence_of_ranks() == evidence


@pytest.mark.parametrize(
    ("initialized", "processes", "evidence"),
    [
        (False, 4, ""),
        (True, 1, ""),
        (True, 4, "jax.distributed is initialized with 4 processes"),
    ],
)
def test_evidence_of_jax_is_that_of_its_distributed_state(
    monkeypatch: pytest.MonkeyPatch, initialized: bool, processes: int, evidence: str
) -> None:
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: initialized),
        process_index=lambda: 0,
        process_count=lambda: processes,
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert ranks.evidence_of_ranks() == evidence


def connect(**options: Any) -> None:
    fake = FakeTransport({"x": [1, 2, 3, 4]}, batch_size=2)
    infeed.connect("fake", "fake", transport=fake, **options).close()


def test_a_feed_without_shard_warns_once_of_equal_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect()  # one process
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    connect(shard=infeed.Shard(1, 2))
    connect(shard=infeed.Shard())  # all of the data, as said
    assert not caplog.records
    connect()
    connect()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "(WORLD_SIZE=2)" in record.message
    assert "same batches; give shard=infeed.Shard(rank, world_size)" in record.message
