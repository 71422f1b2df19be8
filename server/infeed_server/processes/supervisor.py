"""Child processes that are restarted when they exit, as with `infeed serve --processes n`.

The processes of `--processes` share one port, because Python runs one thread at a time: a process
sends no more than one processor can. Every batch is a pure function of its request, so any process
can answer any trainer; the kernel distributes incoming connections. The first process starts alone
and builds the record indexes, which the others then find.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from infeed.shared.errors import ServerError

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 30.0
"""Seconds before an exited process is restarted; doubled while it keeps exiting."""

STABLE_RUN_SECONDS = 60.0
"""A process that ran this long is restarted after `MIN_BACKOFF_SECONDS` again."""

_POLL_INTERVAL_SECONDS = 0.05

_READY_LINE = re.compile(r"serving on (\S+) \(http (\S+)\)")

CommandFactory = Callable[[str | None], Sequence[str]]
"""Last address of the process (None at its first start) → its command line."""


class ChildProcess:
    """A process that is restarted whenever it exits."""

    def __init__(self, name: str, command: CommandFactory) -> None:
        self.name = name
        self.address: str | None = None
        """The address at which it serves, or last served."""
        self.http: str | None = None
        """The address of its control plane; None while it does not serve."""
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._started_at = 0.0
        self._backoff = MIN_BACKOFF_SECONDS
        self._restart_at: float | None = None

    def start(self) -> None:
        # In its own session: Ctrl-C at a terminal is for the parent, which ends its children. The
        # parent holds the other end of standard input, which closes when the parent exits.
        self._process = subprocess.Popen(  # noqa: S603
            self._command(self.address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.http, self._started_at, self._restart_at = None, time.monotonic(), None
        threading.Thread(target=self._read_stdout, args=(self._process,), daemon=True).start()

    def restart_exited(self) -> None:
        """Detects that the process exited, and restarts it once its backoff is over."""
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self.start()
        elif (status := self.status) is not None:
            self._close_stdin()
            self.http = None
            doubled = min(2 * self._backoff, MAX_BACKOFF_SECONDS)
            is_stable = now - self._started_at >= STABLE_RUN_SECONDS
            self._backoff = MIN_BACKOFF_SECONDS if is_stable else doubled
            self._restart_at = now + self._backoff
            text = "%s ended with status %d; restarting it in %g s"
            log.error(text, self.name, status, self._backoff)

    @property
    def status(self) -> int | None:
        """Exit status; None while the process runs."""
        return self._process.poll() if self._process else None

    @property
    def is_starting(self) -> bool:
        """Whether the process runs and does not serve yet."""
        return self.http is None and self._restart_at is None

    def terminate(self) -> None:
        if self._process:
            self._process.terminate()

    def kill(self) -> None:
        """Kills the process; `restart_exited` starts it again."""
        if self._process:
            self._process.kill()

    def wait(self, deadline: float, *, log_kill: bool = True) -> None:
        """Waits until the process exits, and kills it at the deadline."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            if log_kill:
                log.error("%s did not end in time; killed", self.name)
            self._process.kill()
            self._process.wait()
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def _read_stdout(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if (match := _READY_LINE.search(line)) and process is self._process:
                    self.address, self.http = match[1], match[2]


class ProcessGroup:
    """Processes of the same command. Only `http_addresses` is thread-safe."""

    def __init__(self, kind: str, count: int, command: CommandFactory) -> None:
        """`kind` names the processes in messages."""
        self.processes = [ChildProcess(f"{kind} {number}", command) for number in range(count)]

    def start(self, stopped: Callable[[float], bool]) -> None:
        """Starts the first process, and the others when it serves; returns when each serves or has
        exited: an exited one must not keep the others from use.

        `stopped` waits for a number of seconds and returns whether to give up. Raises `ServerError`
        when the first process exits instead of serving; it logs the reason.
        """
        first, *others = self.processes
        first.start()
        while first.http is None and not stopped(_POLL_INTERVAL_SECONDS):
            if first.status is not None:
                raise ServerError(f"the first process ended with status {first.status}")
        for process in others:
            process.start()
        while any(process.is_starting for process in self.processes):
            if stopped(_POLL_INTERVAL_SECONDS):
                return
            self.restart_exited()

    def restart_exited(self) -> None:
        """Restarts exited processes once their backoff is over."""
        for process in self.processes:
            process.restart_exited()

    def kill_hung(self, numbers: Iterable[int], seconds: float) -> None:
        """Kills the processes with these numbers, which have not answered for that time."""
        for process in map(self.processes.__getitem__, numbers):
            if process.status is None:
                log.error("%s has not answered for %g s; killing it", process.name, seconds)
                process.kill()

    def http_addresses(self) -> list[str | None]:
        """Returns the address of each control plane, None for a process that does not serve."""
        return [process.http if process.status is None else None for process in self.processes]

    def stop(self, timeout: float, *, log_kills: bool = True) -> None:
        """Terminates all processes, and kills those that run after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(deadline, log_kill=log_kills)
