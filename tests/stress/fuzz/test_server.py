"""Server fuzzer: a share of its cases, and checks that violations are detected."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from tests.stress.fuzz import call_runner, connection_runner, frames
from tests.stress.fuzz.call_runner import CallRunner
from tests.stress.fuzz.calls import Call, Catalog, codes, headers
from tests.stress.fuzz.case import Kinds, mutate
from tests.stress.fuzz.connection_runner import ConnectionRunner
from tests.stress.fuzz.fake_server import FakeServer
from tests.stress.fuzz.kinds import CALLS, OVERLOADS, RAW_CONNECTIONS
from tests.stress.fuzz.raw_connections import RawConnection
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_fuzzer import ServerFuzzer, fuzz_server
from tests.stress.fuzz.server_under_test import ServerUnderTest

SEED = 11
EMPTY_CATALOG = Catalog({})

Clock: TypeAlias = "Callable[[], float]"


def test_thousand_server_cases_have_no_violation(server: ServerUnderTest) -> None:
    report = Report(SEED, "server")
    ServerFuzzer(server, report).run_cases(1000, check_timeouts=False, overloads=4)
    assert report.problems == []
    assert report.cases >= 1000
    assert set(report.outcomes) == {*CALLS.known, *RAW_CONNECTIONS.known, *OVERLOADS.known}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundred_thousand_server_cases_have_no_violation() -> None:
    report = Report(SEED, "server")
    fuzz_server(report, 100_000, check_timeouts=True)
    print(report)
    assert report.problems == []
    assert report.cases >= 100_000


def test_case_is_drawn_equally_each_time(server: ServerUnderTest) -> None:
    catalog = Catalog(server.specs)
    for kinds, count in ((CALLS, 100), (RAW_CONNECTIONS, 100), (OVERLOADS, 2)):
        for case in kinds.cases(count):
            again = kinds.case(str(case))
            drawn = [each.draw(each.rng(SEED), catalog) for each in (case, again)]
            assert drawn[0].parts == drawn[1].parts, str(case)
    with pytest.raises(KeyError):
        CALLS.case("nothing:1")


def test_single_cases_run_by_name(server: ServerUnderTest) -> None:
    report = Report(SEED, "server")
    fuzzer = ServerFuzzer(server, report)
    for name in ("good-stream:3", "half-session:5", "rapid-reset:0"):
        fuzzer.run_case(name)
    assert (report.cases, report.problems) == (3, [])
    with pytest.raises(KeyError):
        fuzzer.run_case("nothing:1")


# Violations are detected.


def run_call(address: str, call: Call, clock: Clock = time.monotonic) -> Report:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def a_call(rng: Any, catalog: Catalog) -> Call:
        return call

    report = Report(SEED, "server")
    CallRunner(address, EMPTY_CATALOG, SEED, report.record, clock).run(kinds.cases(1))
    return report


def run_connection(
    address: str, connection: RawConnection, clock: Clock = time.monotonic
) -> Report:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def a_connection(rng: Any, catalog: Catalog) -> RawConnection:
        return connection

    report = Report(SEED, "server")
    ConnectionRunner(address, EMPTY_CATALOG, SEED, report.record, clock).run(kinds.cases(1))
    return report


def trailers_only(*trailers: tuple[str, str]) -> list[bytes]:
    fields = [(":status", "200"), ("content-type", "application/grpc"), *trailers]
    return [frames.settings(), frames.headers(1, fields, 5)]


@pytest.mark.parametrize(
    ("response", "problem_text"),
    [
        (trailers_only(("grpc-status", "2"), ("grpc-message", "why")), r"UNKNOWN \(why\), not"),
        (trailers_only(("grpc-status", "13"), ("grpc-message", "why")), r"INTERNAL: why"),
        (trailers_only(("grpc-status", "5")), "NOT_FOUND"),
        (trailers_only(), "HTTP 200"),
        ([*trailers_only()[:1], frames.reset(1, 2)], "reset with code 2"),
        ([frames.frame(frames.GOAWAY, 0, 0, bytes(8))], "its connection ended"),
    ],
)
def test_unexpected_status_is_a_violation(response: list[bytes], problem_text: str) -> None:
    with FakeServer(lambda method: response) as fake:
        report = run_call(fake.address, Call(headers("/x"), [b""], codes=codes("INTERNAL")))
    (problem,) = report.problems
    assert problem_text.replace("\\", "") in problem
    assert "again: --seed 11 --case a-call:0" in problem


def test_hanging_call_is_a_violation() -> None:
    clock = itertools.count(0, call_runner.HANG_TIMEOUT_SECONDS / 2).__next__
    with FakeServer(lambda method: None) as fake:
        report = run_call(fake.address, Call(headers("/x")), clock)
    assert "no end in sight" in report.problems[0]


def test_connection_left_open_is_a_violation() -> None:
    clock = itertools.count(0, connection_runner.HANG_TIMEOUT_SECONDS / 2).__next__
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        report = run_connection(address, RawConnection([b"x"]), clock)
    assert "does not end the connection" in report.problems[0]


def test_invalid_server_frames_are_a_violation(server: ServerUnderTest) -> None:
    good = [frames.PREFACE + frames.settings(), frames.headers(1, headers("/x"), 5)]
    for bad in (frames.frame(frames.PUSH, 4, 1), frames.frame(frames.CONTINUATION, 4, 1)):
        with FakeServer(lambda method, bad=bad: [bad]) as fake:
            assert "ValueError" in run_connection(fake.address, RawConnection(good)).problems[0]
    assert run_connection(server.address, RawConnection(good)).problems == []


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


def test_mutations_change_most_data() -> None:
    rng = random.Random(1)
    assert sum(mutate(rng, b"0123456789") != b"0123456789" for _ in range(200)) > 150
