"""Processes that are started anew when they end; and those of `infeed serve --processes n`.

These share one port. Python runs one thread at a time, so one process sends what one processor can
send. Every batch is a pure function of its request, so any process can answer any trainer; the
kernel shares incoming connections out among them. The first process starts alone: what it builds
once (record indexes) the others find.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from infeed.errors import ServerError

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a process that ended is started again; doubled while it keeps ending."""

STEADY_SECONDS = 60.0
"""A process that lasted so long did not end because of how it starts."""

_LOOK_SECONDS = 0.05

_SERVING = re.compile(r"serving on (\S+) \(http (\S+)\)")


Command = Callable[[str | None], Sequence[str]]
"""What a process is started with, by the address that it served on before; None the first time."""


class Worker:
    """One process of several, started anew whenever it ends."""

    def __init__(self, name: str, command: Command) -> None:
        self.name = name
        self.address: str | None = None
        """Where it serves, or did when it served last."""
        self.http: str | None = None
        """Where its control plane answers; None while it does not serve."""
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._begun = 0.0
        self._pause = FIRST_PAUSE
        self._due: float | None = None

    def start(self) -> None:
        # Of a session of its own: Ctrl-C at a terminal is for the parent, which tells the others.
        # It holds the other end of standard input, whose end tells that the parent is gone.
        self._process = subprocess.Popen(  # noqa: S603
            self._command(self.address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._begun, self._due = time.monotonic(), None
        self._listener = threading.Thread(
            target=self._listen, args=(self._process,), name=f"infeed {self.name}", daemon=True
        )
        self._listener.start()

    def tend(self) -> None:
        """Notices an end, and starts the process again when its pause is over."""
        now = time.monotonic()
        if self._due is not None:
            if now >= self._due:
                self.start()
        elif (status := self.status) is not None:
            self._let_go()
            self.http = None
            steady = now - self._begun >= STEADY_SECONDS
            self._pause = FIRST_PAUSE if steady else min(2 * self._pause, LONGEST_PAUSE)
            self._due = now + self._pause
            log.error(
                "%s ended with status %d; starting it again in %g s",
                self.name,
                status,
                self._pause,
            )

    @property
    def status(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        if self._process:
            self._process.terminate()

    def kill(self) -> None:
        """At once; `tend` starts it anew."""
        if self._process:
            self._process.kill()

    def wait(self, deadline: float, *, told: bool = True) -> None:
        """Kills the process at the deadline if it has not ended by then, which is `told`."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            if told:
                log.error("%s does not end; killed", self.name)
            self._process.kill()
            self._process.wait()
        self._let_go()

    def _let_go(self) -> None:
        """Closes the ends of the pipes to a process that is gone."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
        if self._listener:
            self._listener.join()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if found := _SERVING.search(line):
                    self.address, self.http = found[1], found[2]


class Fleet:
    """The processes together. For one thread, but `http_addresses`, which any may ask."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._workers = [Worker(f"process {number}", lambda _: command) for number in range(count)]

    def start(self, stopped: Callable[[float], bool]) -> None:
        """Starts the first process, and the others when it serves; returns when all do.

        `stopped` sleeps for so many seconds and says whether to give up. Raises `ServerError`
        when the first process ends instead of serving: it said why.
        """
        first, *others = self._workers
        first.start()
        while first.http is None and not stopped(_LOOK_SECONDS):
            if first.status is not None:
                raise ServerError(f"the first process ended with status {first.status}")
        for worker in others:
            worker.start()
        while not all(self.http_addresses()) and not stopped(_LOOK_SECONDS):
            self.tend()

    def tend(self) -> None:
        """Starts processes again that ended."""
        for worker in self._workers:
            worker.tend()

    def http_addresses(self) -> list[str | None]:
        """Where each process's control plane answers; None for one that does not serve."""
        return [worker.http for worker in self._workers]

    def stop(self, patience: float) -> None:
        """Ends all processes; they get `patience` seconds to do it by themselves."""
        for worker in self._workers:
            worker.terminate()
        deadline = time.monotonic() + patience
        for worker in self._workers:
            worker.wait(deadline)
