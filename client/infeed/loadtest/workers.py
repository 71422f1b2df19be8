"""Workers: the processes of simulated trainers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from infeed.loadtest.plan import LoadPlan

_END_TIMEOUT_SECONDS = 3.0
"""Seconds for a trainer to end before it is killed."""

_TRAINER = """
from multiprocessing.connection import Connection
from infeed.loadtest.trainer import run_process
run_process(Connection({}))
"""


class Worker:
    """One simulated trainer."""

    def __init__(self, rank: int, plan: LoadPlan, options: Mapping[str, Any]) -> None:
        """`options` are of `connect`."""
        self.rank = rank
        self.records: Connection | None = None
        """Where its records arrive; None while it does not run."""
        self._plan, self._options = plan, options
        self._process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        self.records, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            # In a session of its own, which Ctrl-C on a terminal does not reach.
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package
                [sys.executable, "-c", _TRAINER.format(number)],
                pass_fds=[number],
                start_new_session=True,
            )
        self._send((self._plan.step_seconds, self._plan.steps, self._options))

    def stop(self) -> None:
        """Asks the trainer to end, unless it has ended."""
        self._send(None)

    def _send(self, value: Any) -> None:
        if self.records is not None:
            with contextlib.suppress(OSError):
                self.records.send(value)

    def kill(self) -> None:
        """Ends the trainer without its last point."""
        if self._process is not None:
            self._process.kill()
        self.end()

    def end(self) -> int | None:
        """Ends what is left of the trainer; returns the exit status of its process."""
        if self.records is not None:
            self.records.close()
            self.records = None
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            return process.wait(_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
