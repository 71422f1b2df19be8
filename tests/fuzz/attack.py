"""Fuzzing a live server: rounds of cases with well-behaved feeds beside and between them."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz import site
from tests.fuzz.calls import World
from tests.fuzz.case import Case
from tests.fuzz.crowd import Crowd
from tests.fuzz.kinds import CALLS, CROWDS, LINES
from tests.fuzz.report import Report
from tests.fuzz.site import NAMES, Cost, Site
from tests.fuzz.sleepers import Sleepers
from tests.fuzz.watch import Watch
from tests.fuzz.wire import Wires

ROUND = 5000
"""Cases between two looks at the server."""

LINES_SHARE = 0.2
"""Of the cases that are whole connections."""

_CROWDS = 24
_WARM = 10_000
"""Cases before memory is looked at: until the allocator has met all that there is, it grows."""
_SETTLE_SECONDS = 90.0
_REST_SECONDS = 2.0

_MORE_MEGABYTES = 64
_MORE_THREADS = 64
"""Those of the batch sizes that are kept warm, which the warm-up need not have met."""
_MORE_FILES = 4


class Attack:
    """One server and what is done to it."""

    def __init__(self, there: Site, report: Report) -> None:
        self._site = there
        self._report = report
        self._complaints = 0
        world = World(there.specs)
        self._world = world
        self._crowd = Crowd(there.address, world, report.seed, report.outcome)
        self._wires = Wires(there.address, world, report.seed, report.outcome)

    def one(self, name: str) -> None:
        """A single case. Raises `KeyError` for a kind that is not known."""
        for kinds, runner in ((CALLS, self._crowd), (LINES, self._wires), (CROWDS, self._wires)):
            if name.partition(":")[0] in kinds.known:
                runner.run([kinds.case(name)])
                self._look()
                return
        raise KeyError(name)

    def many(self, count: int, *, patient: bool) -> None:
        """So many cases; `patient` also waits for what a server does only after a while."""
        lines = round(count * LINES_SHARE)
        calls = CALLS.cases(count - lines)
        wires = LINES.cases(lines)
        with ExitStack() as stack:
            sleepers = stack.enter_context(Sleepers(self._site.address, self._world))
            watch = Watch(self._site.address, self._report.problem)
            with watch:
                while self._round(calls, wires):
                    self._look()
                    self._report.progress(count, f"; {self._site.cost()}")
                self._report.note(f"{watch.feeds} feeds beside it, all their batches compared")
            if patient:
                for problem in sleepers.problems():
                    self._report.problem(problem)
                self._report.note(f"{sleepers.count} peers that sleep")
        self._alone(watch)

    def _round(self, calls: Iterator[Case], wires: Iterator[Case]) -> bool:
        """False when there are no more."""
        lines = round(ROUND * LINES_SHARE)
        before = self._report.cases
        self._crowd.run(itertools.islice(calls, ROUND - lines))
        self._wires.run(itertools.islice(wires, lines))
        return self._report.cases > before and self._site.alive

    def _alone(self, watch: Watch) -> None:
        """What takes all there is; then, a feed must find its place again."""
        self._wires.run(CROWDS.cases(_CROWDS))
        for name in NAMES:
            watch.check(name)
        self._look()

    def _look(self) -> None:
        if not self._site.alive:
            self._report.problem(f"the server died\n{self._site.log_tail}")
        complaints = self._site.complaints()
        for line in complaints[self._complaints :]:
            self._report.problem(f"the server's log: {line}\n{self._site.log_tail}")
        self._complaints = len(complaints)


def fuzz_server(report: Report, cases: int, *, case: str | None = None, patient: bool) -> None:
    """A server of its own, that many cases, and what is left of them."""
    with tempfile.TemporaryDirectory() as folder, site.started(Path(folder)) as there:
        attack = Attack(there, report)
        if case is not None:
            attack.one(case)
            return
        first = there.cost()
        warm_up = Report(report.seed, "warm-up")
        Attack(there, warm_up).many(min(cases, _WARM), patient=False)
        report.began = time.monotonic()
        time.sleep(_REST_SECONDS)
        before = there.cost()
        attack.many(cases, patient=patient)
        after = _settled(there, before)
        report.note(f"server at first: {first}\nwarm: {before}\nafter: {after}")
        if not _near(before, after):
            report.problem(f"the server holds more than before: {before}; now {after}")
        report.problems += warm_up.problems


def _settled(there: Site, before: Cost) -> Cost:
    """What the server holds once it has let go of what it can."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not _near(before, cost := there.cost()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return cost


def _near(before: Cost, after: Cost) -> bool:
    return (
        after.megabytes <= before.megabytes + _MORE_MEGABYTES
        and after.threads <= before.threads + _MORE_THREADS
        and after.files <= before.files + _MORE_FILES
    )
