"""Server fuzzer: a share of its cases, and checks that violations are detected."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from tests.stress.fuzz.call_runner import CallRunner
from tests.stress.fuzz.calls import CALLS, Call, Catalog
from tests.stress.fuzz.case import Kinds
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


@contextmanager
def answering(code: grpc.StatusCode | None) -> Iterator[str]:
    """Runs a server that ends each call with a status; None: it never does."""

    def handle(requests: Any, context: grpc.ServicerContext) -> Any:
        if code is not None:
            context.abort(code, "why")
        yield from ()
        while context.is_active():
            list(requests)

    handler = grpc.stream_stream_rpc_method_handler(handle)
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, [grpc.method_handlers_generic_handler("x", {"Y": handler})])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(0).wait()


@pytest.mark.parametrize(
    ("code", "problem_text"),
    [
        (grpc.StatusCode.INTERNAL, "INTERNAL (why), not"),
        (grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
        (None, "no end in sight"),
    ],
)
def test_unexpected_end_is_a_violation(code: grpc.StatusCode | None, problem_text: str) -> None:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def a_call(rng: Any, catalog: Catalog) -> Call:
        return Call("/x/Y", [b""], end=code is not None, codes=frozenset(("OK",)))

    report = Report(SEED, "server")
    with answering(code) as address:
        CallRunner(address, Catalog({}), SEED, report.record, timeout=1.0).run(kinds.cases(1))
    (problem,) = report.problems
    assert problem_text in problem
    assert "again: --seed 11 --case a-call:0" in problem


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
