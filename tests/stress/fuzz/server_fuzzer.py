"""Server fuzzer: runs rounds of cases against a live server, with reference feeds in parallel."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

from tests.stress.fuzz import calls_stream, calls_unary, server_under_test
from tests.stress.fuzz.call_runner import CallRunner
from tests.stress.fuzz.calls import CALLS, Catalog
from tests.stress.fuzz.reference_feeds import ReferenceFeeds
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.server_under_test import ResourceUsage, ServerUnderTest

KIND_MODULES = (calls_stream, calls_unary)
"""Modules that register kinds of cases on import."""

ROUND_CASES = 5000
"""Cases between two checks of the server."""

_MAX_WARM_UP_CASES = 10_000
"""Cases before memory is measured, because the allocator's pools grow at first."""
_SETTLE_TIMEOUT_SECONDS = 90.0
_REST_SECONDS = 2.0

_MAX_EXTRA_MEGABYTES = 64
_MAX_EXTRA_THREADS = 64
"""Threads of batch sizes that are kept warm and that the warm-up may not have used."""
_MAX_EXTRA_FILES = 4


class ServerFuzzer:
    """Runs cases against one server and checks it."""

    def __init__(self, server: ServerUnderTest, report: Report) -> None:
        self._server = server
        self._report = report
        self._errors = 0
        catalog = Catalog(server.specs)
        self._calls = CallRunner(server.address, catalog, report.seed, report.record)

    def run_case(self, name: str) -> None:
        """Runs a single case. Raises `KeyError` for an unknown kind."""
        self._calls.run([CALLS.case(name)])
        self._check_server()

    def run_cases(self, count: int) -> None:
        """Runs `count` cases, with reference feeds in parallel."""
        cases = CALLS.cases(count)
        with ReferenceFeeds(self._server.address, self._report.add_problem) as feeds:
            while self._server.alive and (some := list(itertools.islice(cases, ROUND_CASES))):
                self._calls.run(some)
                self._check_server()
        self._report.notes.append(f"{feeds.feeds} reference feeds, all batches compared")

    def _check_server(self) -> None:
        if not self._server.alive:
            self._report.add_problem(f"the server died\n{self._server.log_tail}")
        errors = self._server.errors_in_log()
        for line in errors[self._errors :]:
            self._report.add_problem(f"the server's log: {line}\n{self._server.log_tail}")
        self._errors = len(errors)


def fuzz_server(report: Report, cases: int, *, case: str | None = None) -> None:
    """Runs `cases` cases, or one, on a new server, and compares its resources before and after."""
    with tempfile.TemporaryDirectory() as folder, server_under_test.started(Path(folder)) as server:
        fuzzer = ServerFuzzer(server, report)
        if case is not None:
            fuzzer.run_case(case)
            return
        first = server.resource_usage()
        warm_up = Report(report.seed, "warm-up")
        ServerFuzzer(server, warm_up).run_cases(min(cases, _MAX_WARM_UP_CASES))
        report.begin = time.monotonic()
        time.sleep(_REST_SECONDS)
        before = server.resource_usage()
        fuzzer.run_cases(cases)
        after = _settled_usage(server, before)
        report.notes.append(f"server at first: {first}\nwarm: {before}\nafter: {after}")
        if not _is_similar(before, after):
            report.add_problem(f"the server holds more resources: before {before}; now {after}")
        report.problems += warm_up.problems


def _settled_usage(server: ServerUnderTest, before: ResourceUsage) -> ResourceUsage:
    """Returns the server's resources once they are similar to before, or after a timeout."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_SECONDS
    while not _is_similar(before, usage := server.resource_usage()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return usage


def _is_similar(before: ResourceUsage, after: ResourceUsage) -> bool:
    return (
        after.megabytes <= before.megabytes + _MAX_EXTRA_MEGABYTES
        and after.threads <= before.threads + _MAX_EXTRA_THREADS
        and after.files <= before.files + _MAX_EXTRA_FILES
    )
