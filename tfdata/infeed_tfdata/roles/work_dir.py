"""The work directory of a dispatcher: its journal and graphs, and whether it can be written.

A dispatcher whose disk is full stops all jobs.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

CHECK_INTERVAL_SECONDS = 5.0
"""Between checks whether the folder can be written."""

_PROBE_BYTES = 64 << 10
"""Written by a check: more than a file system finds room for in the blocks of other files."""


def find_work_dir_problem(folder: Path) -> str | None:
    """Writes a temporary file. Returns why the dispatcher can store nothing, None when it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return (
            f"the dispatcher cannot write to its work directory {folder}, so no job continues: "
            f"{error.strerror}"
        )
    return None


def free_bytes(folder: Path) -> int:
    """Returns the free space of the file system; 0 for a folder that is gone."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
