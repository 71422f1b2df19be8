"""Server fuzzer: a share of its cases, and checks that violations are detected."""

from __future__ import annotations

import pytest
from tests.stress.fuzz.calls import CALLS
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_fuzzer import ServerFuzzer, fuzz_server
from tests.stress.fuzz.server_under_test import ServerUnderTest

SEED = 11


def test_thousand_server_cases_have_no_violation(server: ServerUnderTest) -> None:
    report = Report(SEED, "server")
    ServerFuzzer(server, report).run_cases(1000)
    assert report.problems == []
    assert report.cases >= 1000
    assert set(report.outcomes) == set(CALLS.known)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundred_thousand_server_cases_have_no_violation() -> None:
    report = Report(SEED, "server")
    fuzz_server(report, 100_000)
    print(report)
    assert report.problems == []
    assert report.cases >= 100_000


# Violations are detected.


def test_changed_batches_are_a_violation(server: ServerUnderTest) -> None:
    problems: list[str] = []
    feeds = ReferenceFeeds(server.address, problems.append)
    feeds.check("numbers")
    assert (feeds.feeds, problems) == (1, [])
    feeds._expected["numbers"][3] = "another"
    feeds.check("numbers")
    feeds.check("nothing")
    assert "other batches: position 12 of epoch 0" in problems[0]
    assert problems[0].endswith("before, another")
    assert "PipelineNotFoundError" in problems[1]
