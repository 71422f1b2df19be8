"""Hostile calls to a live server: valid statuses, and the same batches to feeds meanwhile."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples
from tests.harness.waiting import wait_until
from tests.stress.fuzz import calls_stream, calls_unary
from tests.stress.fuzz.call_runner import CONCURRENT_CALLS, CallRunner
from tests.stress.fuzz.calls import CALLS, Call, Catalog
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.server_under_test import ServerUnderTest

KIND_MODULES = (calls_stream, calls_unary)
"""Modules that register kinds of calls on import."""


def run_calls(server: ServerUnderTest) -> None:
    """Runs `CONCURRENT_CALLS` at a time, and reads reference feeds meanwhile."""
    catalog = Catalog(server.specs)
    with CallRunner(server.address) as runner, ReferenceFeeds(server.address) as feeds:

        @examples(160)
        @given(rng=st.randoms(use_true_random=True))
        def run(rng: random.Random) -> None:
            kinds = rng.choices([*CALLS], [*CALLS.values()], k=CONCURRENT_CALLS)
            assert runner.problems([draw(rng, catalog) for draw in kinds]) == []
            assert server.errors_in_log() == []

        run()
    assert feeds.problems == []


@pytest.mark.timeout(3600)
def test_hostile_calls_have_no_violation(server: ServerUnderTest) -> None:
    run_calls(server)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hostile_calls_leave_no_resources(server: ServerUnderTest) -> None:
    run_calls(server)  # the pools of the allocator grow at first
    before = server.resource_usage()
    run_calls(server)
    wait_until(
        lambda: not server.resource_usage().exceeds(before),
        lambda: f"{server.resource_usage()} returns to {before}",
    )


# Violations are detected.


def test_another_status_or_response_is_a_violation(server: ServerUnderTest) -> None:
    path, message = f"{calls_unary.FEED}GetPipeline", calls_unary.get("numbers")
    with CallRunner(server.address) as runner:
        calls = [
            Call(path, [message], codes=frozenset(("OK",))),
            Call(path, [message], codes=frozenset(("NOT_FOUND",))),
            Call(path, [message], check=lambda responses: f"{len(responses)} responses"),
        ]
        status, response = runner.problems(calls)
    assert status.endswith(": OK ()")
    assert response.endswith(": 1 responses")


def test_changed_batches_are_a_violation(server: ServerUnderTest) -> None:
    feeds = ReferenceFeeds(server.address)
    feeds.check("numbers")
    assert feeds.problems == []
    feeds._expected["numbers"][3] = "another"
    feeds.check("numbers")
    feeds.check("nothing")
    assert "other batches: position 12 of epoch 0" in feeds.problems[0]
    assert feeds.problems[0].endswith("before, another")
    assert "PipelineNotFoundError" in feeds.problems[1]
