"""Fuzzing the client: what a server might send, and what becomes of it within bounded memory."""

from __future__ import annotations

import resource
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.stress.fuzz import server_under_test
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.kinds import REPLIES
from tests.stress.fuzz.replies import Reply
from tests.stress.fuzz.report import Report
from tests.stress.fuzz.sessions import Session, record

HANG_SECONDS = 120.0

_MORE_BYTES = 4 << 30
"""Of address space, for the stacks of threads too; what is more was not to be asked for."""

_PROGRESS_SECONDS = 30.0


def fuzz_client(report: Report, cases: int, *, case: str | None = None) -> None:
    """That many cases, on sessions that a server of its own has said."""
    with tempfile.TemporaryDirectory() as folder, server_under_test.started(Path(folder)) as server:
        sessions = record(server)
    chosen = REPLIES.cases(cases) if case is None else iter([REPLIES.case(case)])
    with bounded():
        play(report, sessions, chosen, cases)


def play(
    report: Report, sessions: Sequence[Session], cases: Iterable[Case[Reply]], count: int
) -> None:
    """Plays the cases, one after the other."""
    told = time.monotonic()
    for case in cases:
        rng = case.rng(report.seed)
        began = time.monotonic()
        problem = None
        try:
            how = case.draw(rng, rng.choice(sessions))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client should not raise it
            how = f"raised {type(error).__name__}"
            problem = "".join(traceback.format_exception(error)[-6:])
        seconds = time.monotonic() - began
        if seconds > HANG_SECONDS:
            problem = f"took {seconds:.0f} s"
        report.outcome(case, how, seconds, problem)
        if time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            report.progress(count)


@contextmanager
def bounded() -> Iterator[None]:
    """This process gets no more address space than a few gigabytes beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
