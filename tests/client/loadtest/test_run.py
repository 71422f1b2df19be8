"""Runs of load tests against fake servers: ranks, faults, failures, and what is left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.loadtest.samples import fake
from tests.client.waiting import infeed_threads, until

from infeed.loadtest import Kill, LoadPlan, Stall, Tally, check, run_load, summarize, workers
from infeed.loadtest.report_text import text_report
from infeed.loadtest.workers import route
from infeed.shared.errors import InvalidRequestError, PipelineNotFoundError, SampleError


def run(plan: LoadPlan, transport: Any, **options: Any) -> Tally:
    return run_load("-", "numbers", plan, connection={"transport": transport}, **options)


@pytest.mark.parametrize("independent", [False, True])
def test_every_rank_makes_its_steps_and_the_delivery_is_exact(independent: bool) -> None:
    plan = LoadPlan(trainers=3, steps=6, step_seconds=0.001, threads=True, independent=independent)
    made = run(plan, fake())
    assert made.failures == []
    assert [trainer.step_count for trainer in made.trainers] == [6, 6, 6]
    summary = check(summarize(made), made)
    assert (len(summary.audits), summary.ok) == (3 if independent else 1, True)
    assert summary.audits[0].outcome.end == 6 * 4 * (1 if independent else 3)
    until(lambda: not infeed_threads())


def test_killed_and_stalled_trainers_lose_nothing() -> None:
    killed = threading.Event()

    def before_batch(position: int) -> None:
        if position >= 200:
            killed.wait(60)

    def progress(tally: Tally) -> None:
        if tally.events:
            killed.set()

    faults: dict[str, Any] = {"kills": (Kill(1, 0.0),), "stalls": (Stall(0, 0.0, 0.01),)}
    plan = LoadPlan(trainers=2, steps=40, step_seconds=0, threads=True, **faults)
    made = run(plan, fake(before_batch=before_batch), progress=progress)
    assert made.failures == []
    assert [len(trainer.lives) for trainer in made.trainers] == [1, 2]
    assert [trainer.step_count for trainer in made.trainers] == [40, 40]
    assert check(summarize(made), made).ok
    texts = [text for _, text in made.events]
    assert texts == ["rank 0 stalls for 0.01 s", "rank 1 is killed"]


def test_a_trainer_that_fails_ends_the_test_with_its_name() -> None:
    def before_batch(position: int) -> None:
        if position >= 40:
            raise SampleError("sample 40 is damaged")

    plan = LoadPlan(trainers=2, duration_seconds=60, step_seconds=0.001, threads=True)
    made = run(plan, fake(before_batch=before_batch))
    assert made.failures
    assert made.failures[0].endswith(": SampleError: sample 40 is damaged")
    assert not check(summarize(made), made).ok


def interrupted(is_due: Callable[[Tally], object], **options: Any) -> Tally:
    """Runs a load test that is interrupted when a tally is due."""

    def progress(tally: Tally) -> None:
        if is_due(tally) and not tally.interrupted:
            signal.raise_signal(signal.SIGINT)

    made = run(LoadPlan(step_seconds=0.001, threads=True, **options), fake(), progress=progress)
    assert (made.interrupted, made.failures) == (True, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    until(lambda: not infeed_threads())
    return made


def test_an_interrupt_leaves_the_report_so_far() -> None:
    made = interrupted(lambda tally: tally.trainers[0].step_count, trainers=2, duration_seconds=600)
    assert check(summarize(made), made).exact


@pytest.mark.parametrize(
    ("options", "due", "text"),
    [
        (
            {"trainers": 3, "ramp_seconds": 600},
            lambda tally: tally.begun,
            "2 of 3 trainers had no batch when the test ended",
        ),
        (
            {"trainers": 1, "duration_seconds": 900, "warm_up_seconds": 600},
            lambda tally: tally.all_began_at,
            "the test ended in its warm-up of 600 s",
        ),
    ],
)
def test_an_interrupt_before_the_measured_time_is_named(
    options: dict[str, Any], due: Any, text: str
) -> None:
    made = interrupted(due, **options)
    report = text_report(summarize(made), made)
    assert "interrupted: the figures so far" in report
    assert f"nothing was measured, for {text}" in report


def test_servers_that_stop_for_good_are_seen() -> None:
    ended = threading.Event()

    def before_batch(position: int) -> None:
        if position >= 40:
            ended.wait(60)

    def progress(tally: Tally) -> None:
        if tally.ended_at:
            ended.set()

    plan = LoadPlan(trainers=1, duration_seconds=0.5, step_seconds=0.001, threads=True)
    made = run(plan, fake(before_batch=before_batch), progress=progress)
    last = made.trainers[0].lives[-1].last
    assert last is not None
    assert last.unanswered_at is not None
    summary = summarize(made)
    assert summary.figures.unanswered_seconds > 0
    assert made.failures == []
    until(lambda: not infeed_threads())


def test_a_missing_pipeline_is_named_at_once() -> None:
    with pytest.raises(PipelineNotFoundError, match="photos"):
        run_load("-", "photos", LoadPlan(), connection={"transport": fake()})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[workers.Process]:
    """The processes of trainers and proxies that are started."""
    started: list[workers.Process] = []
    start = workers._start

    def recorded_start(module: str, options: Any) -> Any:
        process, connection = start(module, options)
        started.append(process)
        return process, connection

    monkeypatch.setattr(workers, "_start", recorded_start)
    return started


def test_processes_behind_a_proxy_are_killed_and_leave_nothing(
    serve: Any, started: list[workers.Process]
) -> None:
    server = serve(fake())
    plan = LoadPlan(
        trainers=2,
        duration_seconds=0.5,
        step_seconds=0.002,
        rtt_seconds=0.002,
        kills=(Kill(0, 0.0),),
    )
    made = run_load(server.address, "numbers", plan)
    assert made.failures == []
    assert [len(trainer.lives) for trainer in made.trainers] == [2, 1]
    summary = check(summarize(made), made)
    assert summary.ok
    assert summary.trainers[1].memory_bytes > 0
    assert len(started) == 4
    assert all(process.returncode is not None for process in started)


@pytest.mark.parametrize(
    ("target", "connection", "named"),
    [
        ("1.2.3.4:7470", {"token": "secret"}, "token unencrypted"),
        ("1.2.3.4:7470,5.6.7.8:7470", {"tls": True}, "--tls-server-name"),
    ],
)
def test_a_proxy_weakens_no_security(target: str, connection: Any, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named), route(target, connection, 0.01, 0.0):
        pass
    with route("localhost:7470", {"tls": True}, 0.01, 0.0) as path:
        assert path.connection["tls"].server_name == "localhost"
        assert path.addresses == {path.target: "localhost:7470"}
