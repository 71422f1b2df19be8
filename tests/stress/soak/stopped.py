"""Four trainers at one server, one of which stops reading: in three ways, one after the other.

`SIGSTOP` halts the process, so its kernel takes what fits into the socket's buffers and no more; a
trainer that just does not ask reads on until its window is full; one that is killed while it is
halted must leave nothing behind.

Memory that was used once stays with a process. So before anything is counted, all trainers are
stopped for a moment in both ways: what rises from then on is new.
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
from tests.stress.soak.curve import TOLERANCE_MB, Check, Curve, Tell, handles
from tests.stress.soak.server import Server, serving
from tests.stress.soak.trainer import Look, Task, ask, digest

_TRAINERS = 4
_WARM_SECONDS = 5.0
_COMPARED = 40
"""Batches behind a stop: more than any that the trainer had before it."""

_COMPARE_SECONDS = 240.0
_SETTLE_SECONDS = 5.0
_FREED_SECONDS = 120.0
LEAST_RATE = 0.9
"""Of what the others got before. They share what the stopped one leaves them, so: more."""

Step = Callable[[], None]

COLUMNS = ("server MB", "stopped MB", "others MB", "unsent MB", "files", "threads")


class Scene:
    """The server and its trainers."""

    def __init__(self, server: Server, tasks: list[Task], trainers: list[SpawnedProcess]) -> None:
        self.server = server
        self.tasks = tasks
        self.trainers = trainers

    def watch(self, seconds: float, stopped: int | None = None) -> tuple[Curve, list[float]]:
        """Looks about once a second, and the steps a second of each trainer that is not stopped."""
        curve = Curve(COLUMNS)
        begin = time.monotonic()
        first, look_at = self._steps(stopped), begin
        while (now := time.monotonic()) < begin + seconds:
            curve.add(f"{now - begin:.0f}", *self._figures(stopped))
            look_at += max(1.0, seconds / 60)
            time.sleep(max(0.0, look_at - time.monotonic()))
        last, passed = self._steps(stopped), time.monotonic() - begin
        return curve, [(b - a) / passed for a, b in zip(first, last, strict=True)]

    def others(self, stopped: int | None) -> list[SpawnedProcess]:
        return [one for number, one in enumerate(self.trainers) if number != stopped]

    def _steps(self, stopped: int | None) -> list[int]:
        return [ask(one).steps for one in self.others(stopped)]

    def _figures(self, stopped: int | None) -> list[float]:
        return [
            own_megabytes(self.server.pid),
            0.0 if stopped is None else own_megabytes(self.trainers[stopped].pid),
            sum(own_megabytes(one.pid) for one in self.others(stopped)),
            self.server.unsent_megabytes(),
            *handles(self.server.pid),
        ]


def run(seconds: float, least_rate: float, tell: Tell) -> list[Check]:
    """Each stop lasts so many seconds; the others must keep that share of their rate."""
    with ExitStack() as stack:
        server = stack.enter_context(serving())
        tasks = [Task(server.address, "large", seed) for seed in range(_TRAINERS)]
        trainers = [
            stack.enter_context(started("tests.stress.soak.trainer", str(task))) for task in tasks
        ]
        for trainer in trainers:
            trainer.read_line()
        scene = Scene(server, tasks, trainers)
        _rehearse(trainers)
        checks = _halted(scene, seconds, least_rate, tell) + _not_asking(
            scene, seconds, least_rate, tell
        )
        checks += _killed(scene, tell)
        for trainer in scene.trainers:
            trainer.finish()
    return checks


def _rehearse(trainers: list[SpawnedProcess]) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for trainer in trainers:
            os.kill(trainer.pid, number)
        time.sleep(_WARM_SECONDS)
    for command in ("pause", "go"):
        for trainer in trainers:
            trainer.send_line(command)
        time.sleep(_WARM_SECONDS)


def _halted(scene: Scene, seconds: float, least_rate: float, tell: Tell) -> list[Check]:
    victim = scene.trainers[0]

    def stop() -> None:
        os.kill(victim.pid, signal.SIGSTOP)

    def go_on() -> None:
        os.kill(victim.pid, signal.SIGCONT)

    return _stop(scene, 0, "SIGSTOP", (stop, go_on), seconds, least_rate, tell)


def _not_asking(scene: Scene, seconds: float, least_rate: float, tell: Tell) -> list[Check]:
    victim = scene.trainers[1]
    ways = (lambda: victim.send_line("pause"), lambda: victim.send_line("go"))
    return _stop(scene, 1, "no next()", ways, seconds, least_rate, tell)


def _stop(
    scene: Scene,
    victim: int,
    way: str,
    ways: tuple[Step, Step],
    seconds: float,
    least_rate: float,
    tell: Tell,
) -> list[Check]:
    """Stops one trainer for a while: all others go on, and so does it behind that."""
    stop, go_on = ways
    quiet, rates = scene.watch(seconds / 2)
    before = ask(scene.trainers[victim])
    stop()
    try:
        curve, rates_during = scene.watch(seconds, victim)
    finally:
        go_on()
    after, differing = _compare(scene, victim, before)
    tell(quiet.table(f"{way}: before", "seconds"))
    tell(curve.table(f"{way}: one of {_TRAINERS} stopped", "seconds"))
    rates_before = [rate for number, rate in enumerate(rates) if number != victim]
    ratios = [b / a for a, b in zip(rates_before, rates_during, strict=True)]
    told = ", ".join(f"{a:.1f} → {b:.1f}" for a, b in zip(rates_before, rates_during, strict=True))
    tell(f"others' batches a second: {told}; the stopped one reconnected {after.reconnects} times")
    rise = max(curve.column("server MB")) - max(quiet.column("server MB"))
    held = max(curve.column("unsent MB"))
    return [
        *(curve.flat(column, way) for column in COLUMNS if column != "unsent MB"),
        Check(
            f"{way}: server rose, with {held:.0f} MB unsent at most",
            rise,
            held + TOLERANCE_MB,
            unit=" MB",
        ),
        Check(
            f"{way}: the slowest other's rate, during ÷ before",
            min(ratios),
            least_rate,
            at_least=True,
        ),
        Check(f"{way}: batches that differ behind the stop, of {_COMPARED}", differing, 0),
    ]


def _compare(scene: Scene, victim: int, before: Look) -> tuple[Look, int]:
    """Has another trainer take what the stopped one took from then on."""
    deadline = time.monotonic() + _COMPARE_SECONDS
    while (look := ask(scene.trainers[victim])).steps < before.steps + _COMPARED + 1:
        if time.monotonic() > deadline:
            return look, _COMPARED
        time.sleep(0.2)
    differing = 0
    with scene.tasks[victim].connect(before.state) as feed:
        for _ in range(_COMPARED):
            batch = feed.next()
            differing += look.digests.get(str(batch.start)) != digest(batch)
    return look, differing


def _killed(scene: Scene, tell: Tell) -> list[Check]:
    """With all others quiet, what the server holds is the halted one's."""
    victim = scene.trainers.pop(2)
    os.kill(victim.pid, signal.SIGSTOP)
    for trainer in scene.trainers:
        trainer.send_line("pause")
    time.sleep(_SETTLE_SECONDS)
    held = scene.server.unsent_megabytes()
    begin = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    while scene.server.gauge("unsent_bytes") and time.monotonic() < begin + _FREED_SECONDS:
        time.sleep(0.01)
    seconds = time.monotonic() - begin
    left, streams = scene.server.unsent_megabytes(), scene.server.gauge("streams")
    tell(f"kill -9 of a halted one: {held:.0f} MB unsent → {left:.0f} MB within {seconds:.2f} s")
    for trainer in scene.trainers:
        trainer.send_line("go")
    return [
        Check("killed: unsent before", held, 1, at_least=True, unit=" MB"),
        Check("killed: unsent behind it", left, 0, unit=" MB"),
        Check("killed: streams left", streams, _TRAINERS - 1),
    ]
