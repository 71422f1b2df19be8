"""Runs of load tests against fake servers: ranks, failures and leftovers."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.tools.loadtest.samples import fake

from infeed.shared.errors import PipelineNotFoundError, SampleError
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.runner import run_load
from infeed_tools.loadtest.summary import summarize
from infeed_tools.loadtest.tally import Tally


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processes of trainers, none of which outlives its test."""
    started: list[subprocess.Popen[Any]] = []
    start = subprocess.Popen

    def recorded_start(*arguments: Any, **options: Any) -> Any:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", recorded_start)
    yield started
    assert all(process.returncode is not None for process in started)


@pytest.mark.parametrize("independent", [False, True])
def test_every_rank_makes_its_steps_and_delivery_is_exact(serve: Any, independent: bool) -> None:
    plan = LoadPlan(trainers=3, steps=6, step_ms=1, independent=independent)
    made = run_load(serve(fake()).address, "numbers", plan)
    assert made.failures == []
    assert [sum(len(steps) for steps, _ in trainer.points) for trainer in made.trainers] == [
        6,
        6,
        6,
    ]
    summary = summarize(made)
    assert (len(summary.audits), summary.ok) == (3 if independent else 1, True)
    assert summary.audits[0].outcome.end == 6 * 4 * (1 if independent else 3)


def test_a_trainer_that_fails_ends_the_test_with_its_name(serve: Any) -> None:
    def before_batch(position: int) -> None:
        if position >= 40:
            raise SampleError("sample 40 is damaged")

    server = serve(fake(before_batch=before_batch))
    made = run_load(server.address, "numbers", LoadPlan(trainers=2, duration=60, step_ms=1))
    assert made.failures
    assert made.failures[0].endswith(": SampleError: sample 40 is damaged")
    assert not summarize(made).ok


def interrupted(address: str, is_due: Callable[[Tally], object], **options: Any) -> Tally:
    """Runs a load test that is interrupted once `is_due` is true of its tally."""

    def progress(tally: Tally) -> None:
        if is_due(tally) and not tally.interrupted:
            signal.raise_signal(signal.SIGINT)

    made = run_load(address, "numbers", LoadPlan(step_ms=1, **options), progress=progress)
    assert (made.interrupted, made.failures) == (True, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return made


def test_an_interrupt_leaves_the_report_so_far(serve: Any) -> None:
    made = interrupted(serve(fake()).address, lambda tally: tally.samples, trainers=2, duration=600)
    assert summarize(made).exact


def test_a_missing_pipeline_is_named_at_once(serve: Any) -> None:
    with pytest.raises(PipelineNotFoundError, match="photos"):
        run_load(serve(fake()).address, "photos", LoadPlan())
