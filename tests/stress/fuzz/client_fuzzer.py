"""Client fuzzer: plays invalid server responses to a client with bounded memory."""

from __future__ import annotations

import resource
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.stress.fuzz import scripts, server_under_test
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.replies import REPLIES, Reply
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.sessions import Session, record

KIND_MODULES = (scripts,)
"""Modules that register kinds of cases on import, beside `replies`."""

HANG_TIMEOUT_SECONDS = 120.0
"""Maximum duration of a case."""

_EXTRA_BYTES = 4 << 30
"""Additional address space, thread stacks included; a larger allocation is a violation."""


def fuzz_client(report: Report, cases: int, *, case: str | None = None) -> None:
    """Runs `cases` cases, or one, on sessions recorded from a new server."""
    with tempfile.TemporaryDirectory() as folder, server_under_test.started(Path(folder)) as server:
        sessions = record(server)
    selected = REPLIES.cases(cases) if case is None else iter([REPLIES.case(case)])
    with bounded():
        run_cases(report, sessions, selected)


def run_cases(report: Report, sessions: Sequence[Session], cases: Iterable[Case[Reply]]) -> None:
    """Runs the cases in sequence and reports their outcomes."""
    for case in cases:
        rng = case.rng(report.seed)
        begin = time.monotonic()
        problem = None
        try:
            outcome = case.draw(rng, rng.choice(sessions))
        except Exception as error:  # noqa: BLE001 - the client must raise no other error
            outcome = f"raised {type(error).__name__}"
            problem = "".join(traceback.format_exception(error)[-6:])
        seconds = time.monotonic() - begin
        if seconds > HANG_TIMEOUT_SECONDS:
            problem = f"took {seconds:.0f} s"
        report.record(case, outcome, problem)


@contextmanager
def bounded() -> Iterator[None]:
    """Limits this process's address space to `_EXTRA_BYTES` more than its current size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
