"""Process of a command line, started anew with `subprocess`."""

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
"""Of every process: no graphics card, and no warnings about that in its log."""


def python_module(module: str, *words: str) -> list[str]:
    """The command line of `python -m MODULE WORDS...`."""
    return [sys.executable, "-m", module, *words]


class SpawnedProcess(Process):
    """Runs from its construction on."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        reads_stdin: bool = False,
    ) -> None:
        """`reads_stdin` gives it a pipe for `send_line`, else its input is empty."""
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
        """Returns the exit status. Raises `HarnessError` when the process runs on."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            text = f"after {timeout:g} s still not: {self.log.name} ends\n{self.log_tail}"
            raise HarnessError(text) from None
        self._close_stdin()
        return status

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def send_line(self, text: str) -> None:
        """Writes a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def finish(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Ends its input, and returns the exit status once it has ended by itself."""
        self._close_stdin()
        return self.wait(timeout)

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


__all__ = ["ENVIRONMENT", "SpawnedProcess", "python_module"]
