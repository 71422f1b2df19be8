"""Soak run of four trainers on one server, one of which stops reading, in three ways in turn.

`SIGSTOP` halts the process, so that data fills its socket's buffers and no more. A trainer that
does not call `next` reads until its prefetch window is full. After a halted trainer is killed, the
server must free all that it held for it.

A process keeps memory that it has used once. So before the measurement, all trainers are stopped
briefly in both ways; growth from then on is new.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks.processes import started
from benchmarks.resident import own_megabytes
from tests.harness.spawned import SpawnedProcess
from tests.stress.soak.curve import TOLERANCE_MB, Check, Curve, Show, handle_counts
from tests.stress.soak.server import Server, serving
from tests.stress.soak.trainer import Task, TrainerState, digest, query

_TRAINERS = 4
_WARM_UP_SECONDS = 5.0
_COMPARED_BATCHES = 40
"""Compared batches after a stop: more than the trainer had prefetched before it."""

_COMPARE_TIMEOUT_SECONDS = 240.0
_SETTLE_SECONDS = 5.0
_FREE_TIMEOUT_SECONDS = 120.0
"""Maximum time until the server has freed the memory of a killed trainer."""

MIN_RATE = 0.9
"""Minimum share of their rate that the other trainers keep; they also get the stopped one's share.
"""

Action = Callable[[], None]

COLUMNS = ("server MB", "stopped MB", "others MB", "unsent MB", "files", "threads")


class Setup:
    """Server with its trainers."""

    def __init__(self, server: Server, tasks: list[Task], trainers: list[SpawnedProcess]) -> None:
        self.server = server
        self.tasks = tasks
        self.trainers = trainers

    def observe(self, seconds: float, stopped: int | None = None) -> tuple[Curve, list[float]]:
        """Returns samples about once a second, and the steps per second of the other trainers."""
        curve = Curve(COLUMNS)
        begin = time.monotonic()
        first, next_sample = self._steps(stopped), begin
        while (now := time.monotonic()) < begin + seconds:
            curve.add(f"{now - begin:.0f}", *self._figures(stopped))
            next_sample += max(1.0, seconds / 60)
            time.sleep(max(0.0, next_sample - time.monotonic()))
        last, elapsed = self._steps(stopped), time.monotonic() - begin
        return curve, [(b - a) / elapsed for a, b in zip(first, last, strict=True)]

    def others(self, stopped: int | None) -> list[SpawnedProcess]:
        return [trainer for number, trainer in enumerate(self.trainers) if number != stopped]

    def _steps(self, stopped: int | None) -> list[int]:
        return [query(trainer).steps for trainer in self.others(stopped)]

    def _figures(self, stopped: int | None) -> list[float]:
        return [
            own_megabytes(self.server.pid),
            0.0 if stopped is None else own_megabytes(self.trainers[stopped].pid),
            sum(own_megabytes(trainer.pid) for trainer in self.others(stopped)),
            self.server.unsent_megabytes(),
            *handle_counts(self.server.pid),
        ]


def run(seconds: float, min_rate: float, show: Show) -> list[Check]:
    """Runs the three stops; two last `seconds`, and the other trainers must keep `min_rate`."""
    with ExitStack() as stack:
        server = stack.enter_context(serving())
        tasks = [Task(server.address, "large", seed) for seed in range(_TRAINERS)]
        trainers = [
            stack.enter_context(started("tests.stress.soak.trainer", str(task))) for task in tasks
        ]
        for trainer in trainers:
            trainer.read_line()
        setup = Setup(server, tasks, trainers)
        _warm_up(trainers)
        checks = _check_halted(setup, seconds, min_rate, show)
        checks += _check_paused(setup, seconds, min_rate, show)
        checks += _check_killed(setup, show)
        for trainer in setup.trainers:
            trainer.finish()
    return checks


def _warm_up(trainers: list[SpawnedProcess]) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for trainer in trainers:
            os.kill(trainer.pid, number)
        time.sleep(_WARM_UP_SECONDS)
    for command in ("pause", "go"):
        for trainer in trainers:
            trainer.send_line(command)
        time.sleep(_WARM_UP_SECONDS)


def _check_halted(setup: Setup, seconds: float, min_rate: float, show: Show) -> list[Check]:
    victim = setup.trainers[0]

    def stop() -> None:
        os.kill(victim.pid, signal.SIGSTOP)

    def resume() -> None:
        os.kill(victim.pid, signal.SIGCONT)

    return _check_stop(setup, 0, "SIGSTOP", (stop, resume), seconds, min_rate, show)


def _check_paused(setup: Setup, seconds: float, min_rate: float, show: Show) -> list[Check]:
    victim = setup.trainers[1]
    actions = (lambda: victim.send_line("pause"), lambda: victim.send_line("go"))
    return _check_stop(setup, 1, "no next()", actions, seconds, min_rate, show)


def _check_stop(
    setup: Setup,
    victim: int,
    name: str,
    actions: tuple[Action, Action],
    seconds: float,
    min_rate: float,
    show: Show,
) -> list[Check]:
    """Stops and resumes one trainer, and checks memory, the others' rates and its batches."""
    stop, resume = actions
    before, rates = setup.observe(seconds / 2)
    state_before = query(setup.trainers[victim])
    stop()
    try:
        during, rates_during = setup.observe(seconds, victim)
    finally:
        resume()
    state_after, differing = _compare_batches(setup, victim, state_before)
    show(before.table(f"{name}: before", "seconds"))
    show(during.table(f"{name}: one of {_TRAINERS} stopped", "seconds"))
    rates_before = [rate for number, rate in enumerate(rates) if number != victim]
    pairs = list(zip(rates_before, rates_during, strict=True))
    ratios = [b / a for a, b in pairs]
    changes = ", ".join(f"{a:.1f} → {b:.1f}" for a, b in pairs)
    show(
        f"others' batches a second: {changes}; "
        f"the stopped one reconnected {state_after.reconnects} times"
    )
    rise = max(during.column("server MB")) - max(before.column("server MB"))
    unsent = max(during.column("unsent MB"))
    return [
        *(during.check_flat(column, name) for column in COLUMNS if column != "unsent MB"),
        Check(
            f"{name}: server rose, with {unsent:.0f} MB unsent at most",
            rise,
            unsent + TOLERANCE_MB,
            unit=" MB",
        ),
        Check(
            f"{name}: the slowest other's rate, during ÷ before",
            min(ratios),
            min_rate,
            at_least=True,
        ),
        Check(f"{name}: differing batches after the stop, of {_COMPARED_BATCHES}", differing, 0),
    ]


def _compare_batches(setup: Setup, victim: int, before: TrainerState) -> tuple[TrainerState, int]:
    """Returns the trainer's state, and how many of its batches differ from another feed's."""
    deadline = time.monotonic() + _COMPARE_TIMEOUT_SECONDS
    while (state := query(setup.trainers[victim])).steps < before.steps + _COMPARED_BATCHES + 1:
        if time.monotonic() > deadline:
            return state, _COMPARED_BATCHES
        time.sleep(0.2)
    differing = 0
    with setup.tasks[victim].connect(before.state) as feed:
        for _ in range(_COMPARED_BATCHES):
            batch = feed.next()
            differing += state.digests.get(str(batch.start)) != digest(batch)
    return state, differing


def _check_killed(setup: Setup, show: Show) -> list[Check]:
    """Kills a halted trainer while the others are paused: the server's unsent data is its own."""
    victim = setup.trainers.pop(2)
    os.kill(victim.pid, signal.SIGSTOP)
    for trainer in setup.trainers:
        trainer.send_line("pause")
    time.sleep(_SETTLE_SECONDS)
    unsent = setup.server.unsent_megabytes()
    begin = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    while setup.server.gauge("unsent_bytes") and time.monotonic() < begin + _FREE_TIMEOUT_SECONDS:
        time.sleep(0.01)
    seconds = time.monotonic() - begin
    left, streams = setup.server.unsent_megabytes(), setup.server.gauge("streams")
    show(
        f"SIGKILL of a halted trainer: {unsent:.0f} MB unsent → {left:.0f} MB "
        f"within {seconds:.2f} s"
    )
    for trainer in setup.trainers:
        trainer.send_line("go")
    return [
        Check("killed: unsent before", unsent, 1, at_least=True, unit=" MB"),
        Check("killed: unsent after", left, 0, unit=" MB"),
        Check("killed: streams left", streams, _TRAINERS - 1),
    ]
