"""Child processes of a process, from procfs."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """Returns the ids of the children of all threads of a process."""
    while True:
        tasks = Path(f"/proc/{pid}/task")
        try:
            files = [task / "children" for task in tasks.iterdir()]
            return [int(child) for file in files for child in file.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            # A thread ended meanwhile; its children now belong to another thread.
            if not is_alive(pid):
                return []


def is_alive(pid: int) -> bool:
    """Returns whether a process with that id exists, be it a zombie."""
    return Path(f"/proc/{pid}").exists()
