"""Processes forked from one that has loaded TensorFlow, which saves seconds per start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.harness.process import ROOT, Process
from tests.harness.waiting import TIMEOUT_SECONDS, HarnessError, wait_until

_PROGRAM = Path(__file__).with_name("nursery_main.py")


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


class Nursery:
    """Forks processes from a template process; all end with it. Also a context manager."""

    def __init__(self) -> None:
        # With `-c`, not as a file: `multiprocessing` in a forked process would run the file of its
        # main module again.
        command = [sys.executable, "-c", _PROGRAM.read_text()]
        # A folder for temporary files, removed at its end: killed processes leave some.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": tempfile.mkdtemp(prefix="infeed-")},
        )
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
        process = kind(log, lambda: self._send(json.dumps(request)))
        self._processes.append(process)
        return process

    def _wait_until_ready(self) -> None:
        """Returns once TensorFlow is loaded, so that a process's start does not include it."""
        if not self._is_ready:
            assert self._process.stdout is not None
            if not self._process.stdout.readline():
                raise HarnessError(f"the nursery exited with status {self._process.wait()}")
            self._is_ready = True

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Kills all processes."""
        for process in self._processes:
            process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(TIMEOUT_SECONDS)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["ForkedProcess", "Nursery"]
