"""Child processes of a process, as the kernel knows them."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """Returns the ids of a process's children, whichever of its threads started them."""
    while True:
        tasks = Path(f"/proc/{pid}/task")
        try:
            files = [task / "children" for task in tasks.iterdir()]
            return [int(child) for file in files for child in file.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            # A thread has ended meanwhile, and its children are another's now.
            if not is_alive(pid):
                return []


def is_alive(pid: int) -> bool:
    """Returns whether there is a process of that id, which may be a zombie."""
    return Path(f"/proc/{pid}").exists()


__all__ = ["children", "is_alive"]
