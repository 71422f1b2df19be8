"""The work directory of a dispatcher: whether it can be written, and what it holds.

TensorFlow writes every change of its state there before it confirms it, so a dispatcher whose disk
is full stops all jobs, and reports that only to the processes that call it.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from infeed_server.processes.periodic import PeriodicTask

log = logging.getLogger(__name__)

DATASETS_FOLDER = "datasets"
"""TensorFlow's name of the folder with the graphs of registered data sets."""

CHECK_INTERVAL_SECONDS = 5.0

_PROBE_BYTES = 64 << 10
"""Written by a check: more than a file system finds room for in the blocks of other files."""


class WorkDirMonitor(PeriodicTask):
    """Checks that a dispatcher can write to its work directory. `problem` is thread-safe."""

    def __init__(self, folder: Path, on_change: Callable[[str | None], None] | None = None) -> None:
        """`on_change` is called on a thread with each new problem, and with None at its end."""
        super().__init__("work-dir", CHECK_INTERVAL_SECONDS, self.run_once)
        self._folder = folder
        self._on_change = on_change
        self.problem: str | None = None
        """Why the dispatcher can store nothing, as of the last check; None when it can."""

    @property
    def used_bytes(self) -> int:
        """The size of all files in the folder."""
        return folder_bytes(self._folder)

    @property
    def free_bytes(self) -> int:
        """The free space of the file system; 0 for a folder that is gone."""
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return 0

    def run_once(self) -> None:
        """Writes a temporary file to the folder."""
        problem = None
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(bytes(_PROBE_BYTES))
        except OSError as error:
            problem = (
                f"the dispatcher cannot write to its work directory {self._folder}, so no job "
                f"continues: {error.strerror}"
            )
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            log.error("%s", problem)
        else:
            log.info("the work directory %s can be written again", self._folder)
        if self._on_change:
            self._on_change(problem)


def folder_bytes(folder: Path) -> int:
    """Returns the size of all files below a folder; 0 for one that does not exist."""
    size = 0
    for file in folder.rglob("*"):
        try:
            size += file.lstat().st_size if file.is_file() else 0
        except OSError:  # deleted meanwhile
            continue
    return size
