"""`infeed serve` as a process that restarts on the same port."""

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
"""Starts `infeed ARGUMENTS`, or `python ...`, with a log and a working directory."""

START_TIMEOUT_SECONDS = 600.0
"""Bound on a server's start: on a machine with thirty busy processes, TensorFlow takes two minutes
to load."""

_SERVING_LINE = r"^serving on (\S+) \(http ([^\s)]+)\)"


def spawn(arguments: Sequence[str], log: Path, cwd: Path) -> Process:
    """Starts a new interpreter. A server then loads TensorFlow, which takes seconds."""
    is_python = arguments[0] == "python"
    command = [sys.executable, *arguments[1:]] if is_python else python_module("infeed", *arguments)
    return SpawnedProcess(command, log, cwd=cwd)


class InfeedServer:
    """A server of one definition; each restart listens on the same addresses.

    As a context manager, it serves in the block. While a server is down, its port can be taken by
    another process, unless it is a `ReservedPort` or from the fixture `new_address`.
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
        """`cwd` is by default the log's folder. `launch` can be a nursery's `start`, which saves
        the time to load TensorFlow."""
        self.address = listen
        """`listen` until the server has served, then its address."""
        self.http = http
        """`http` until the server has served, then the address of its control plane."""
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
        """The current process, or the last one."""
        assert self._process is not None, "the server was not started"
        return self._process

    def start(self) -> None:
        """Starts a process, and returns before it serves. The previous process must have ended."""
        assert self._process is None or self._process.ended, "the server runs already"
        arguments = ("serve", self._definition, "--listen", self.address, "--http", self.http)
        self._serves = False
        self.starts += 1
        self._process = self._launch([*arguments, *self._options], self._log, self._cwd)

    @property
    def serves(self) -> bool:
        """Whether the process announced that it serves. It may have ended since."""
        if not self._serves and self._process is not None:
            match = re.search(_SERVING_LINE, self._process.stdout, re.MULTILINE)
            if match is not None:
                self.address, self.http = match.groups()
                self._serves = True
        return self._serves

    def wait_until_serving(self, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Waits until the process serves. Raises `HarnessError` when the process ends instead."""
        self.process.wait_until(lambda: self.serves, f"{self.address} serves", timeout)

    @property
    def log(self) -> str:
        """The stderr of all its processes."""
        return self.process.log_file("stderr").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Id of the current process."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.ended

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end."""
        if self._process is not None:
            self._process.kill()

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, without waiting for the end."""
        self.process.signal(signal.SIGTERM)

    def terminate(self) -> int:
        """Sends SIGTERM, and returns the exit status."""
        self.ask_to_stop()
        return self.wait()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Waits for the end, and returns the exit status."""
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
