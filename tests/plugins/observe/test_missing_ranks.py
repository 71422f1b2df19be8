"""Missing ranks: warnings about jobs that lack one for a minute, and their timing."""

from __future__ import annotations

import logging
from typing import Any

from tests.plugins.observe.doubles import job_view, trainer_view

from infeed_observe.missing_ranks import MissingRanks
from infeed_observe.views import JobView


def job(number: int, *ranks: int, world_size: int = 2) -> JobView:
    trainers = (trainer_view(rank, peer=f"10.0.0.{number}:{rank}") for rank in ranks)
    return job_view(number, *trainers, world_size=world_size)


def warnings(*jobs: JobView) -> list[str]:
    """Returns the warnings about jobs that stay like this for a minute."""
    missing = MissingRanks()
    for now in (100.0, 160.0):
        missing.update(now, {"p": jobs})
    return list(missing.warnings.values())


def test_rank_that_never_connects_is_named_after_a_minute(caplog: Any) -> None:
    missing, lacking = MissingRanks(), {"p": [job(0, 0)]}
    with caplog.at_level(logging.WARNING):
        for now in (100.0, 159.0, 160.0, 161.0):
            missing.update(now, lacking)
            assert bool(missing.warnings) == (now >= 160.0)
    (message,) = caplog.messages
    assert message == (
        "job p-7-8x2-0: rank 1 of 2 is not connected to this server; start it, or look in its "
        "log for the servers that it connects to"
    )
    missing.update(162.0, {"p": [job(0, 0, 1)]})
    assert not missing.warnings
    missing.update(163.0, lacking)  # it restarts
    assert not missing.warnings


def test_two_trainers_with_one_rank_are_named() -> None:
    text = (
        "rank 1 of 2 is not connected to this server, and two trainers have rank 0 (10.0.0.0:0 and "
        "10.0.0.1:0); give each its own rank"
    )
    assert warnings(job(0, 0), job(1, 0)) == [text, text]


def test_jobs_without_a_fault_are_not_named() -> None:
    assert not warnings(job(0, 0, 1))
    assert not warnings(job(0, 0, 1), job(1, 0, 1))  # two equal jobs
    assert not warnings(job(0, 0, world_size=1), job(1, 0, world_size=1))
    # Each host has its own server.
    assert not warnings(job_view(0, trainer_view(0, peer="unix")))


def test_few_of_many_missing_ranks_are_named() -> None:
    (text,) = warnings(job(0, 1, 3, world_size=1 << 40))
    assert text.startswith("ranks 0, 2, 4, 5 and 1099511627770 more of 1099511627776 are not")
