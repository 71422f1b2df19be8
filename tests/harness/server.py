"""`infeed serve` as a process that is restarted on its port."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.harness.process import Process
from tests.harness.spawned import SpawnedProcess, python_module
from tests.harness.waiting import TIMEOUT_SECONDS

Launch: TypeAlias = Callable[[Sequence[str], Path, Path], Process]
"""Starts `infeed WORDS...`, or `python ...` where that is the first word, with a log and in a
directory."""

START_SECONDS = 600.0
"""Deadline of a server's start: on a machine with thirty busy processes, TensorFlow alone takes two
minutes to load."""

_SERVING = r"^serving on (\S+) \(http ([^\s)]+)\)"


def spawn(words: Sequence[str], log: Path, cwd: Path) -> Process:
    """Starts a new interpreter. A server loads TensorFlow first, which takes seconds."""
    is_python = words[0] == "python"
    command = [sys.executable, *words[1:]] if is_python else python_module("infeed", *words)
    return SpawnedProcess(command, log, cwd=cwd)


class InfeedServer:
    """A server on one definition; each start after the first takes the same addresses.

    As a context manager, it starts, serves and ends with the block.
    """

    def __init__(
        self,
        definition: Path | str,
        log: Path,
        *options: str,
        listen: str = "127.0.0.1:0",
        http: str = "off",
        cwd: Path | None = None,
        launch: Launch = spawn,
    ) -> None:
        """Paths of the definition are seen from `cwd`, by default the log's folder. `launch` can
        be a nursery's `start`, with which a server starts in a moment."""
        self.address = listen
        """As it was given until the server has served once, then with its real port."""
        self.http = http
        """The same of HTTP."""
        self.starts = 0
        self._definition = str(definition)
        self._options = options
        self._log = log
        self._cwd = cwd or log.parent
        self._launch = launch
        self._process: Process | None = None
        self._serves = False

    @property
    def process(self) -> Process:
        """The process that was started last."""
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Starts a process and returns before it serves. Requires that none runs."""
        assert self._process is None or self._process.ended, "it still runs"
        words = ("serve", self._definition, "--listen", self.address, "--http", self.http)
        self._serves = False
        self.starts += 1
        self._process = self._launch([*words, *self._options], self._log, self._cwd)

    @property
    def serves(self) -> bool:
        """Whether the process has written that it serves. It may have ended since."""
        if not self._serves and self._process is not None:
            found = re.search(_SERVING, self._process.stdout, re.MULTILINE)
            if found is not None:
                self.address, self.http = found.groups()
                self._serves = True
        return self._serves

    def wait_until_serving(self, timeout: float = START_SECONDS) -> None:
        """Raises `HarnessError` when the process ends instead."""
        self.process.wait_until(lambda: self.serves, f"{self.address} serves", timeout)

    @property
    def log(self) -> str:
        """What all its processes have written to stderr."""
        return self.process.log_file("stderr").read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.ended

    def kill(self) -> None:
        """Sends SIGKILL, and returns when the process is gone."""
        if self._process is not None:
            self._process.kill()

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, as an orchestrator does, without waiting for the end."""
        self.process.signal(signal.SIGTERM)

    def terminate(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        self.ask_to_stop()
        return self.wait()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Returns the exit status."""
        return self.process.wait(timeout)

    def __enter__(self) -> InfeedServer:
        self.start()
        try:
            self.wait_until_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()


__all__ = ["InfeedServer", "Launch", "spawn"]
