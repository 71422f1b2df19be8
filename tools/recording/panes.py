"""Processes whose commands and output lines are recorded with their times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TIMEOUT_SECONDS = 300.0
"""Bound on the wait for a line; TensorFlow takes minutes to load on a busy machine."""


class Line(NamedTuple):
    """A command or a line of output, at a time of the monotonic clock."""

    time: float
    text: str


class Pane:
    """A shell that runs one command, as a context manager that ends both."""

    def __init__(self, command: str, folder: Path) -> None:
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self.lines = [Line(time.monotonic(), f"$ {command}")]
        self._changed = threading.Condition()
        # With a second command, the shell stays the parent and reports a killed child.
        self._shell = subprocess.Popen(  # noqa: S603
            ["bash", "-c", f"{command}\nexit $?"],  # noqa: S607
            cwd=folder,
            env={**os.environ, **quiet, "PATH": tools, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def child(self) -> int:
        """Id of the command's process."""
        pid = self._shell.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Returns the match of the first output line that matches.

        Raises `RuntimeError` if there is none before the end, or in time.
        """

        def matches() -> list[re.Match[str]]:
            found = (re.search(pattern, line.text) for line in self.lines[1:])
            return [match for match in found if match]

        with self._changed:
            self._changed.wait_for(
                lambda: matches() or not self._reader.is_alive() or self._ended, TIMEOUT_SECONDS
            )
            if not matches():
                output = "\n".join(line.text for line in self.lines)
                raise RuntimeError(f"no line {pattern!r} in the output:\n{output}")
            return matches()[0]

    def wait(self) -> int:
        """Waits for the end, and returns the exit status."""
        status = self._shell.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        return status

    _ended = False

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for text in self._shell.stdout:
            with self._changed:
                self.lines.append(Line(time.monotonic(), text.rstrip()))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __enter__(self) -> Pane:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shell.poll() is None:
            with suppress(IndexError, ProcessLookupError):  # the command has ended already
                os.kill(self.child, 15)
        self.wait()
        assert self._shell.stdout is not None
        self._shell.stdout.close()
