"""Jobs: which trainers belong together, and the answers that they get."""

from __future__ import annotations

from typing import Any

import pytest
from tests.harness.clock import ManualClock

from infeed.shared.report import ServerReport, TrainerReport
from infeed_observe.jobs import Jobs
from infeed_server.serving.instrument import ConnectedTrainer

ANSWER = ServerReport(seconds=10.0, batches=5)


def waiting(seconds: float) -> TrainerReport:
    return TrainerReport(seconds=10.0, steps=20, wait_seconds=seconds, total_steps=20)


def connect(jobs: Jobs, rank: int, feed: str, **changes: Any) -> ConnectedTrainer:
    values: dict[str, Any] = {"pipeline": "photos", "seed": 17, "world_size": 2, **changes}
    trainer = ConnectedTrainer(
        rank=rank, feed_id=feed, peer="127.0.0.1:9", batch_size=32, position=640, **values
    )
    jobs.connect(trainer)
    return trainer


def shown(jobs: Jobs) -> dict[str, list[tuple[int, str]]]:
    """Returns the trainers of each job, as rank and feed."""
    return {job.id: [(one.rank, one.feed) for one in job.trainers] for job in jobs.views("photos")}


def test_ranks_of_one_job_are_together_and_equal_jobs_apart() -> None:
    jobs = Jobs(lambda *_: ANSWER)
    connect(jobs, 1, "b")
    connect(jobs, 0, "a" * 20)
    connect(jobs, 0, "a" * 20)  # reconnects before its old stream has ended
    connect(jobs, 0, "x", pipeline="other")
    second = connect(jobs, 0, "c")
    connect(jobs, 0, "d")
    expected = {
        "photos-17-32x2-0": [(0, "aaaaaaaa"), (1, "b")],
        "photos-17-32x2-1": [(0, "c")],
        "photos-17-32x2-2": [(0, "d")],
    }
    assert shown(jobs) == expected
    for _ in range(2):
        jobs.disconnect(second)
        assert shown(jobs).keys() == expected.keys() - {"photos-17-32x2-1"}
    connect(jobs, 0, "e")
    assert shown(jobs)["photos-17-32x2-1"] == [(0, "e")]


def test_worst_rank_is_the_one_that_waits_most() -> None:
    asked = []
    jobs = Jobs(lambda name, seconds: asked.append((name, seconds)) or ANSWER)
    trainers = [connect(jobs, rank, f"{rank}") for rank in range(4)]
    jobs.on_report(connect(jobs, 0, "x", pipeline="other"), waiting(9.0))
    assert jobs.on_report(trainers[0], waiting(1.0)) == ANSWER  # no other rank has reported
    assert asked[-1] == ("photos", 10.0)  # the period of the job's reports
    for trainer, wait in zip(trainers[1:], (5.0, 2.0, 8.0), strict=True):
        jobs.on_report(trainer, waiting(wait))
    jobs.disconnect(trainers[3])
    assert jobs.on_report(trainers[3], waiting(8.0)) is None
    answer = jobs.on_report(connect(jobs, 3, "again"), waiting(7.0))
    assert answer is not None
    assert answer.worst is not None
    assert (answer.worst.rank, answer.worst.report) == (1, waiting(5.0))


def test_report_that_is_too_early_is_ignored() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    trainer = connect(jobs, 0, "a")
    for seconds, taken in ((0.0, True), (0.4, False), (0.2, True)):
        clock.now += seconds
        answer = jobs.on_report(trainer, waiting(clock.now))
        assert (answer is not None) == taken
        (job,) = jobs.views("photos")
        assert (job.trainers[0].report == waiting(clock.now)) == taken


def test_report_without_a_successor_counts_no_longer() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    stopped, other = connect(jobs, 0, "a"), connect(jobs, 1, "b")
    jobs.on_report(stopped, waiting(9.0))
    for seconds, report in ((14.0, waiting(9.0)), (1.0, None)):
        clock.now += seconds
        jobs.on_report(other, waiting(1.0))
        jobs.drop_old_reports()
        (job,) = jobs.views("photos")
        assert job.trainers[0].report == report
    seen = job.trainers[0].to_json()
    assert (seen["report"], seen["wait_share"], seen["report_age_seconds"]) == (None, None, 15.0)
    clock.now += 1.0
    answer = jobs.on_report(other, waiting(1.0))
    assert answer is not None
    assert answer.worst is None
    assert jobs.on_report(stopped, waiting(8.0))  # it continues
    assert jobs.views("photos")[0].trainers[0].report == waiting(8.0)


def test_trainer_is_shown_with_its_position_and_report() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    jobs.on_report(connect(jobs, 1, "b"), waiting(4.0))
    clock.now += 2
    (job,) = jobs.views("photos")
    assert job.to_json(None)["trainers"] == [
        {
            "rank": 1,
            "feed": "b",
            "peer": "127.0.0.1:9",
            "connected_seconds": 2,
            "sent_position": 640,
            "report_age_seconds": 2,
            "report": waiting(4.0).to_json(),
            "wait_share": 0.4,
            "step_seconds": 0.3,
        }
    ]


def test_held_time_is_that_of_the_streams_of_the_job() -> None:
    clock, held = ManualClock(), {"job": 0.0, "other": 0.0}
    jobs = Jobs(lambda *_: ANSWER, clock)

    def waited(name: str) -> dict[str, float]:
        return {"unsent_seconds": held[name], "shortage_seconds": held[name] / 2}

    one = connect(jobs, 0, "a", held=lambda: waited("job"))
    two = connect(jobs, 1, "b")
    other = connect(jobs, 0, "c", seed=18, held=lambda: waited("other"))
    for round_ in range(5):
        clock.now += 2.0
        held["job"] += 0.5
        held["other"] += 2.0
        for trainer in (one, two, other):
            answer = jobs.on_report(trainer, waiting(5.0))
            assert answer is not None
            expected = {one: 2.5, two: 2.5, other: 10.0}[trainer]
            if round_:
                assert answer.unsent_seconds == pytest.approx(expected)
                assert answer.shortage_seconds == pytest.approx(expected / 2)
    times = [job.report.unsent_seconds for job in jobs.views("photos")]
    assert times == pytest.approx([2.5, 10.0])
