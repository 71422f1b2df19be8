"""Child process started with `subprocess`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.harness.process import ROOT, Process
from tests.harness.waiting import TIMEOUT_SECONDS, HarnessError

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
"""Variables of every process: no GPU, and no warnings about that in its log."""


def python_module(module: str, *arguments: str) -> list[str]:
    """Returns the command line of `python -m MODULE ARGUMENTS`."""
    return [sys.executable, "-m", module, *arguments]


class SpawnedProcess(Process):
    """A process that starts with its construction."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        reads_stdin: bool = False,
    ) -> None:
        """`reads_stdin` opens a pipe for `send_line`; else stdin is empty."""
        super().__init__(log)
        with self.log_file("stdout").open("ab") as out, self.log_file("stderr").open("ab") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if reads_stdin else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                cwd=cwd,
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
            )
        self.pid = self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Waits for the end; returns the exit status. Raises `HarnessError` when it times out."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            message = f"not met after {timeout:g} s: {self.log.name} ends\n{self.log_tail}"
            raise HarnessError(message) from None
        self._close_stdin()
        return status

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def send_line(self, text: str) -> None:
        """Writes a line to stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def finish(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Closes stdin, waits for the end, and returns the exit status."""
        self._close_stdin()
        return self.wait(timeout)

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
