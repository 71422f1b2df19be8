"""Base class of child processes whose outputs are log files."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.harness.waiting import TIMEOUT_SECONDS, HarnessError, wait_until

ROOT = Path(__file__).resolve().parents[2]
"""The repository's root, where the modules are."""

_MAX_TAIL_LINES = 12
"""Lines of each output in an error."""

_STOP_TIMEOUT_SECONDS = 30.0
"""Time from SIGTERM to SIGKILL."""

P = TypeVar("P", bound="Process")


class Process(ABC):
    """A child process with an id. As a context manager, it ends with the block.

    Its outputs are appended to the files `LOG.stdout` and `LOG.stderr`; the properties `stdout` and
    `stderr` are this process's part.
    """

    pid: int

    def __init__(self, log: Path) -> None:
        self.log = log
        for kind in ("stdout", "stderr"):
            self.log_file(kind).touch()  # the process may open them later than it runs
        self._offsets = {kind: _size(self.log_file(kind)) for kind in ("stdout", "stderr")}
        self._read = 0
        """Bytes that `read_line` has returned."""

    @property
    @abstractmethod
    def status(self) -> int | None:
        """The exit status, -n after signal n; None while the process runs."""

    def log_file(self, kind: str) -> Path:
        """Returns the path of `LOG.KIND`."""
        return self.log.with_name(f"{self.log.name}.{kind}")

    @property
    def stdout(self) -> str:
        return self._output("stdout")

    @property
    def stderr(self) -> str:
        return self._output("stderr")

    @property
    def ended(self) -> bool:
        return self.status is not None

    @property
    def log_tail(self) -> str:
        """The last lines of both outputs."""
        tails = (text.splitlines()[-_MAX_TAIL_LINES:] for text in (self.stdout, self.stderr))
        return "\n".join(line for tail in tails for line in tail if line.strip())

    def wait_until(
        self, condition: Callable[[], object], what: str, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Waits for a condition. Raises `HarnessError`, with the end of the process's log, when the
        process ends before, or after `timeout` seconds."""

        def is_met_or_ended() -> bool:
            ended = self.ended  # read first: the process may meet the condition just before its end
            return bool(condition()) or ended

        wait_until(is_met_or_ended, lambda: f"{what}\n{self.log_tail}", timeout)
        if not condition():
            raise HarnessError(
                f"{self.log.name} ended with status {self.status} before: {what}\n{self.log_tail}"
            )

    def read_line(self, timeout: float = TIMEOUT_SECONDS) -> str:
        """Returns the next line of stdout."""
        line = b""

        def is_whole() -> bool:
            nonlocal line
            with self.log_file("stdout").open("rb") as file:
                file.seek(self._offsets["stdout"] + self._read)
                line = file.readline()
            return line.endswith(b"\n")

        self.wait_until(is_whole, "it writes a line on stdout", timeout)
        self._read += len(line)
        return line.decode().strip()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Waits for the end; returns the exit status. Raises `HarnessError` when it times out."""
        wait_until(lambda: self.ended, lambda: f"{self.log.name} ends\n{self.log_tail}", timeout)
        assert self.status is not None
        return self.status

    def signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)

    def halt(self) -> None:
        """Sends SIGSTOP, and waits until no thread of the process runs.

        Until then, which takes long on a busy machine, it still answers requests.
        """
        self.signal(signal.SIGSTOP)
        self.wait_until(lambda: _thread_states(self.pid) == {"T"}, "all of its threads are stopped")

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL when the process does not end in time."""
        self.signal(signal.SIGTERM)
        try:
            self.wait(_STOP_TIMEOUT_SECONDS)
        except HarnessError:
            self.kill()

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _output(self, kind: str) -> str:
        try:
            with self.log_file(kind).open("rb") as file:
                file.seek(self._offsets[kind])
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""


def _thread_states(pid: int) -> set[str]:
    """Returns the letters of the states, as in `ps`, that the threads of a process are in."""
    states = set()
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread ended
            states.add(file.read_text().rpartition(") ")[2][0])
    return states


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
