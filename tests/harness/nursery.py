"""Processes forked from one that has loaded TensorFlow, which saves seconds per start.

A run of tests has one template, which loads TensorFlow. Each test process has a nursery, which is
forked from the template, forks the processes that the tests start, and ends with the test process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.harness.process import ROOT, Process
from tests.harness.waiting import TIMEOUT_SECONDS, HarnessError, wait_until

_PROGRAM = Path(__file__).with_name("nursery_main.py")
_PYTHON = Path(__file__).with_name("forked_python.py")


class ForkedProcess(Process):
    """A process whose id and exit status are the files `LOG.pid` and `LOG.status`."""

    def __init__(self, log: Path, fork: Callable[[], None]) -> None:
        """Calls `fork`, and returns when the process runs."""
        super().__init__(log)
        self._status: int | None = None
        for kind in ("pid", "status"):
            self.log_file(kind).unlink(missing_ok=True)  # files of an earlier process
        fork()
        file = self.log_file("pid")
        wait_until(file.exists, f"the process of {log} runs")
        self.pid = int(file.read_text())

    @property
    def status(self) -> int | None:
        if self._status is None and (file := self.log_file("status")).exists():
            self._status = int(file.read_text())
        return self._status


F = TypeVar("F", bound=ForkedProcess)


class Template:
    """The process that loads TensorFlow, on the first request."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="infeed-template-", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        self.address = str(folder / "socket")
        """Path of the Unix socket for nurseries."""
        self.python = folder / "python"
        """An interpreter that is forked from this process."""
        self.python.write_text(f"#!{sys.executable} -IS\n{_PYTHON.read_text()}")
        self.python.chmod(0o755)
        # With `-c`, not as a file: `multiprocessing` in a forked process would run the file of its
        # main module again.
        command = [sys.executable, "-c", _PROGRAM.read_text(), str(self.python)]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()
            self._process = subprocess.Popen(command, stdin=listener, cwd=ROOT)

    def close(self) -> None:
        """Kills the process; nurseries must be closed before."""
        self._process.kill()
        self._process.wait(TIMEOUT_SECONDS)
        self._folder.cleanup()

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Nursery:
    """Forks processes for this process; all end with it. Also a context manager."""

    def __init__(self, template: str) -> None:
        """`template` is the address of a template."""
        self.python = Path(template).with_name("python")
        """An interpreter that is forked from the template."""
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(template)
        self._connection.sendall(b"{}\n")
        self._is_ready = False
        self._processes: list[ForkedProcess] = []

    def start(
        self,
        arguments: Sequence[str],
        log: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        kind: type[F] = ForkedProcess,  # type: ignore[assignment]
    ) -> F:
        """Starts `infeed ARGUMENTS`, or `python FILE ...`, or `python -m MODULE ...`."""
        self._wait_until_ready()
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "log": str(log.resolve()),
            "env": dict(environment or {}),
        }
        line = f"{json.dumps(request)}\n".encode()
        process = kind(log, lambda: self._connection.sendall(line))
        self._processes.append(process)
        return process

    def _wait_until_ready(self) -> None:
        """Returns once TensorFlow is loaded, so that a process's start does not include it."""
        if not self._is_ready:
            if not self._connection.recv(64):
                raise HarnessError("the template of the nursery ended; its error is on stderr")
            self._is_ready = True

    def close(self) -> None:
        """Kills all processes."""
        for process in self._processes:
            process.kill()
        self._connection.shutdown(socket.SHUT_WR)
        self._connection.settimeout(TIMEOUT_SECONDS)
        while self._connection.recv(64):  # it removes its folder, and ends
            pass
        self._connection.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
