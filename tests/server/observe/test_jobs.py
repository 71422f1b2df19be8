"""Jobs: which trainers belong together, and what they are answered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.harness.clock import ManualClock

from infeed.shared.report import ServerReport, TrainerReport
from infeed_server.observe.jobs import ConnectedTrainer, JobKey, Jobs

KEY = JobKey("photos", seed=17, batch_size=32, world_size=2)
ANSWER = ServerReport(seconds=10.0, batches=5)


def waiting(seconds: float) -> TrainerReport:
    return TrainerReport(seconds=10.0, steps=20, wait_seconds=seconds, total_steps=20)


def connect(jobs: Jobs, rank: int, feed: str, key: JobKey = KEY) -> ConnectedTrainer:
    trainer = jobs.connect(key, rank, feed, "127.0.0.1:9")
    trainer.position = 640
    return trainer


def test_ranks_of_one_job_are_together() -> None:
    jobs = Jobs(lambda *_: ANSWER)
    one, two = connect(jobs, 0, "a"), connect(jobs, 1, "b")
    assert one.job == two.job
    again = connect(jobs, 0, "a")  # reconnects before its old stream has ended
    assert again.job == one.job


def test_equal_jobs_differ_by_their_feeds() -> None:
    jobs = Jobs(lambda *_: ANSWER)
    first, second, third = (connect(jobs, 0, feed) for feed in "abc")
    assert [item.job.number for item in (first, second, third)] == [0, 1, 2]
    assert len({item.job.id for item in (first, second, third)}) == 3
    jobs.disconnect(second)
    assert connect(jobs, 0, "d").job.number == 1


def test_worst_rank_is_the_one_that_waits_most() -> None:
    jobs = Jobs(lambda *_: ANSWER)
    trainers = [connect(jobs, rank, f"{rank}") for rank in range(4)]
    other = connect(jobs, 0, "x", JobKey("other", 17, 32, 1))
    jobs.on_report(other, waiting(9.0))
    assert jobs.on_report(trainers[0], waiting(1.0)) == ANSWER  # no other rank has reported
    for trainer, wait in zip(trainers[1:], (5.0, 2.0, 8.0), strict=True):
        jobs.on_report(trainer, waiting(wait))
    jobs.disconnect(trainers[3])
    answer = jobs.on_report(connect(jobs, 3, "again"), waiting(7.0))
    assert answer is not None
    assert answer.worst is not None
    assert (answer.worst.rank, answer.worst.report) == (1, waiting(5.0))


def test_report_that_is_too_early_is_ignored() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    trainer = connect(jobs, 0, "a")
    assert jobs.on_report(trainer, waiting(1.0))
    clock.now += 0.4
    assert jobs.on_report(trainer, waiting(2.0)) is None
    assert trainer.report == waiting(1.0)
    clock.now += 0.2
    assert jobs.on_report(trainer, waiting(3.0))
    assert trainer.report == waiting(3.0)


def test_report_without_a_successor_counts_no_longer() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    stopped, other = connect(jobs, 0, "a"), connect(jobs, 1, "b")
    jobs.on_report(stopped, waiting(9.0))
    clock.now += 14.0
    jobs.on_report(other, waiting(1.0))
    jobs.drop_old_reports()
    assert stopped.report == waiting(9.0)
    clock.now += 1.0
    jobs.drop_old_reports()
    (job,) = jobs.to_json("photos")
    seen = job["trainers"][0]
    assert (seen["report"], seen["wait_share"], seen["report_age_seconds"]) == (None, None, 15.0)
    answer = jobs.on_report(other, waiting(1.0))
    assert answer is not None
    assert answer.worst is None
    assert jobs.on_report(stopped, waiting(8.0))  # it goes on
    assert stopped.report == waiting(8.0)


def test_json_of_a_pipeline_has_its_jobs_and_ranks() -> None:
    clock = ManualClock()
    jobs = Jobs(lambda *_: ANSWER, clock)
    trainers = [connect(jobs, rank, feed) for rank, feed in ((1, "b"), (0, "a" * 20))]
    connect(jobs, 0, "x", JobKey("other", 17, 32, 1))
    jobs.on_report(trainers[0], waiting(4.0))
    clock.now += 2
    (job,) = jobs.to_json("photos")
    assert job["id"] == "photos-17-32x2-0"
    zero, one = job["trainers"]
    assert (zero["rank"], zero["feed"], zero["report"], zero["wait_share"]) == (
        0,
        "aaaaaaaa",
        None,
        None,
    )
    assert (one["rank"], one["sent_position"], one["report_age_seconds"]) == (1, 640, 2)
    assert (one["connected_seconds"], one["wait_share"], one["step_seconds"]) == (2, 0.4, 0.3)
    assert one["report"] == waiting(4.0).to_json()


def test_trainer_that_disconnects_is_gone() -> None:
    jobs = Jobs(lambda *_: ANSWER)
    trainer = connect(jobs, 0, "a")
    jobs.on_report(trainer, waiting(1.0))
    for _ in range(2):
        jobs.disconnect(trainer)
        assert jobs.to_json("photos") == []


def test_held_time_is_that_of_the_streams_of_the_job() -> None:
    clock, held = ManualClock(), {"job": 0.0, "other": 0.0}
    jobs = Jobs(lambda *_: ANSWER, clock)
    other_key = replace(KEY, seed=18)

    def waited(name: str) -> dict[str, float]:
        return {"unsent_seconds": held[name], "shortage_seconds": held[name] / 2}

    one = jobs.connect(KEY, 0, "a", "p", lambda: waited("job"))
    two = jobs.connect(KEY, 1, "b", "p")
    other = jobs.connect(other_key, 0, "c", "p", lambda: waited("other"))
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
    shown = [item["report"]["unsent_seconds"] for item in jobs.to_json("photos")]
    assert shown == pytest.approx([2.5, 10.0])


def test_report_covers_what_the_job_has_reported_on() -> None:
    asked = []
    jobs = Jobs(lambda name, seconds: asked.append((name, seconds)) or ANSWER)
    trainer = connect(jobs, 0, "a")
    jobs.on_report(trainer, replace(waiting(1.0), seconds=2.5))
    assert asked == [("photos", 2.5)]
