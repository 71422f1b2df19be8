"""Fuzzing a live server: rounds of cases with well-behaved feeds beside and between them."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.stress.fuzz import server_under_test
from tests.stress.fuzz.calls import Catalog
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.clients import Clients
from tests.stress.fuzz.connection_runner import ConnectionRunner
from tests.stress.fuzz.idle_connections import IdleConnections
from tests.stress.fuzz.kinds import CALLS, OVERLOADS, RAW_CONNECTIONS
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_under_test import NAMES, Cost, ServerUnderTest

ROUND = 5000
"""Cases between two looks at the server."""

RAW_SHARE = 0.2
"""Of the cases that are whole connections."""

_OVERLOADS = 24
_WARM = 10_000
"""Cases before memory is looked at: until the allocator has met all that there is, it grows."""
_SETTLE_SECONDS = 90.0
_REST_SECONDS = 2.0

_MORE_MEGABYTES = 64
_MORE_THREADS = 64
"""Those of the batch sizes that are kept warm, which the warm-up need not have met."""
_MORE_FILES = 4


class ServerFuzzer:
    """One server and what is done to it."""

    def __init__(self, server: ServerUnderTest, report: Report) -> None:
        self._server = server
        self._report = report
        self._errors = 0
        catalog = Catalog(server.specs)
        self._catalog = catalog
        self._clients = Clients(server.address, catalog, report.seed, report.outcome)
        self._connections = ConnectionRunner(server.address, catalog, report.seed, report.outcome)

    def one(self, name: str) -> None:
        """A single case. Raises `KeyError` for a kind that is not known."""
        for kinds, runner in (
            (CALLS, self._clients),
            (RAW_CONNECTIONS, self._connections),
            (OVERLOADS, self._connections),
        ):
            if name.partition(":")[0] in kinds.known:
                runner.run([kinds.case(name)])
                self._look()
                return
        raise KeyError(name)

    def many(self, count: int, *, patient: bool, overloads: int = _OVERLOADS) -> None:
        """Runs so many cases, then the overloads; `patient` also waits for what a server does only
        after a while."""
        lines = round(count * RAW_SHARE)
        calls = CALLS.cases(count - lines)
        connections = RAW_CONNECTIONS.cases(lines)
        with ExitStack() as stack:
            idle = stack.enter_context(IdleConnections(self._server.address, self._catalog))
            feeds = ReferenceFeeds(self._server.address, self._report.problem)
            with feeds:
                while self._round(calls, connections):
                    self._look()
                    self._report.progress(count, f"; {self._server.cost()}")
                self._report.note(f"{feeds.feeds} feeds beside it, all their batches compared")
            if patient:
                for problem in idle.problems():
                    self._report.problem(problem)
                self._report.note(f"{idle.count} peers that sleep")
        self._overload(feeds, overloads)

    def _round(self, calls: Iterator[Case], connections: Iterator[Case]) -> bool:
        """False when there are no more."""
        lines = round(ROUND * RAW_SHARE)
        before = self._report.cases
        self._clients.run(itertools.islice(calls, ROUND - lines))
        self._connections.run(itertools.islice(connections, lines))
        return self._report.cases > before and self._server.alive

    def _overload(self, feeds: ReferenceFeeds, count: int) -> None:
        """Takes all calls that the server answers at a time; feeds must work again afterwards."""
        self._connections.run(OVERLOADS.cases(count))
        for name in NAMES:
            feeds.check(name)
        self._look()

    def _look(self) -> None:
        if not self._server.alive:
            self._report.problem(f"the server died\n{self._server.log_tail}")
        errors = self._server.errors_in_log()
        for line in errors[self._errors :]:
            self._report.problem(f"the server's log: {line}\n{self._server.log_tail}")
        self._errors = len(errors)


def fuzz_server(report: Report, cases: int, *, case: str | None = None, patient: bool) -> None:
    """A server of its own, that many cases, and what is left of them."""
    with tempfile.TemporaryDirectory() as folder, server_under_test.started(Path(folder)) as server:
        fuzzer = ServerFuzzer(server, report)
        if case is not None:
            fuzzer.one(case)
            return
        first = server.cost()
        warm_up = Report(report.seed, "warm-up")
        ServerFuzzer(server, warm_up).many(min(cases, _WARM), patient=False)
        report.began = time.monotonic()
        time.sleep(_REST_SECONDS)
        before = server.cost()
        fuzzer.many(cases, patient=patient)
        after = _settled(server, before)
        report.note(f"server at first: {first}\nwarm: {before}\nafter: {after}")
        if not _near(before, after):
            report.problem(f"the server holds more than before: {before}; now {after}")
        report.problems += warm_up.problems


def _settled(server: ServerUnderTest, before: Cost) -> Cost:
    """What the server holds once it has let go of what it can."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not _near(before, cost := server.cost()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return cost


def _near(before: Cost, after: Cost) -> bool:
    return (
        after.megabytes <= before.megabytes + _MORE_MEGABYTES
        and after.threads <= before.threads + _MORE_THREADS
        and after.files <= before.files + _MORE_FILES
    )
