"""A live server meets what no trainer would send; `make fuzz` is the long run of this."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from tests.stress.fuzz import clients, connection_runner, frames
from tests.stress.fuzz.calls import Call, Catalog, codes, headers
from tests.stress.fuzz.case import Kinds, mutated
from tests.stress.fuzz.clients import Clients
from tests.stress.fuzz.connection_runner import ConnectionRunner
from tests.stress.fuzz.fake_server import FakeServer
from tests.stress.fuzz.kinds import CALLS, OVERLOADS, RAW_CONNECTIONS
from tests.stress.fuzz.raw_connections import RawConnection
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_fuzzer import ServerFuzzer, fuzz_server
from tests.stress.fuzz.server_under_test import ServerUnderTest

SEED = 11
NOTHING = Catalog({})

Clock: TypeAlias = "Callable[[], float]"


def test_a_share_of_the_cases(server: ServerUnderTest) -> None:
    report = Report(SEED, "server")
    ServerFuzzer(server, report).many(1000, patient=False, overloads=4)
    assert report.problems == []
    assert report.cases >= 1000
    assert set(report.ends) == {*CALLS.known, *RAW_CONNECTIONS.known, *OVERLOADS.known}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_cases() -> None:
    report = Report(SEED, "server")
    fuzz_server(report, 100_000, patient=True)
    print(report)
    assert report.problems == []
    assert report.cases >= 100_000


def test_a_case_is_the_same_each_time(server: ServerUnderTest) -> None:
    catalog = Catalog(server.specs)
    for kinds, count in ((CALLS, 100), (RAW_CONNECTIONS, 100), (OVERLOADS, 2)):
        for case in kinds.cases(count):
            again = kinds.case(str(case))
            drawn = [one.draw(one.rng(SEED), catalog) for one in (case, again)]
            said = [each.parts for each in drawn]
            assert said[0] == said[1], str(case)
    with pytest.raises(KeyError):
        CALLS.case("nothing:1")


def test_one_case_alone(server: ServerUnderTest) -> None:
    report = Report(SEED, "server")
    fuzzer = ServerFuzzer(server, report)
    for name in ("good-stream:3", "half-session:5", "rapid-reset:0"):
        fuzzer.one(name)
    assert (report.cases, report.problems) == (3, [])
    with pytest.raises(KeyError):
        fuzzer.one("nothing:1")


# That a run without violations says something: what is wrong is found.


def one_call(address: str, call: Call, clock: Clock = time.monotonic) -> Report:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def a_call(rng: Any, catalog: Catalog) -> Call:
        return call

    report = Report(SEED, "server")
    Clients(address, NOTHING, SEED, report.outcome, clock).run(kinds.cases(1))
    return report


def one_connection(
    address: str, connection: RawConnection, clock: Clock = time.monotonic
) -> Report:
    kinds: Kinds[Any] = Kinds()

    @kinds.add()
    def a_connection(rng: Any, catalog: Catalog) -> RawConnection:
        return connection

    report = Report(SEED, "server")
    ConnectionRunner(address, NOTHING, SEED, report.outcome, clock).run(kinds.cases(1))
    return report


def answer(*trailers: tuple[str, str]) -> list[bytes]:
    fields = [(":status", "200"), ("content-type", "application/grpc"), *trailers]
    return [frames.settings(), frames.headers(1, fields, 5)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(("grpc-status", "2"), ("grpc-message", "why")), r"UNKNOWN \(why\), not"),
        (answer(("grpc-status", "13"), ("grpc-message", "why")), r"INTERNAL: why"),
        (answer(("grpc-status", "5")), "NOT_FOUND"),
        (answer(), "HTTP 200"),
        ([*answer()[:1], frames.reset(1, 2)], "reset with code 2"),
        ([frames.frame(frames.GOAWAY, 0, 0, bytes(8))], "its connection ended"),
    ],
)
def test_an_improper_status_is_a_violation(said: list[bytes], told: str) -> None:
    with FakeServer(lambda method: said) as fake:
        report = one_call(fake.address, Call(headers("/x"), [b""], codes=codes("INTERNAL")))
    (problem,) = report.problems
    assert told.replace("\\", "") in problem
    assert "again: --seed 11 --case a-call:0" in problem


def test_a_call_that_hangs_is_a_violation() -> None:
    clock = itertools.count(0, clients.HANG_SECONDS / 2).__next__
    with FakeServer(lambda method: None) as fake:
        report = one_call(fake.address, Call(headers("/x")), clock)
    assert "no end in sight" in report.problems[0]


def test_a_connection_that_is_kept_is_a_violation() -> None:
    clock = itertools.count(0, connection_runner.HANG_SECONDS / 2).__next__
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        report = one_connection(address, RawConnection([b"x"], must_end=True), clock)
    assert "does not end the connection" in report.problems[0]


def test_frames_that_no_server_sends_are_a_violation(server: ServerUnderTest) -> None:
    good = [frames.PREFACE + frames.settings(), frames.headers(1, headers("/x"), 5)]
    for said in (frames.frame(frames.PUSH, 4, 1), frames.frame(frames.CONTINUATION, 4, 1)):
        with FakeServer(lambda method, said=said: [said]) as fake:
            assert "ValueError" in one_connection(fake.address, RawConnection(good)).problems[0]
    assert one_connection(server.address, RawConnection(good)).problems == []


def test_other_batches_are_a_violation(server: ServerUnderTest) -> None:
    told: list[str] = []
    watch = ReferenceFeeds(server.address, told.append)
    watch.check("numbers")
    assert (watch.feeds, told) == (1, [])
    watch._expected["numbers"][3] = "another"
    watch.check("numbers")
    watch.check("nothing")
    assert "other batches: position 12 of epoch 0" in told[0]
    assert told[0].endswith("before, another")
    assert "PipelineNotFoundError" in told[1]


def test_mutations_change_something() -> None:
    rng = random.Random(1)
    assert sum(mutated(rng, b"0123456789") != b"0123456789" for _ in range(200)) > 150
