"""Files that the user's code left open, at the end of a process that does not collect garbage."""

from __future__ import annotations

import contextlib
import gc
import io


def write_open_files() -> None:
    """Writes what open files have in memory. A compressed file gets text from a plain one, and
    writes its end to another one."""
    files = [item for item in gc.get_objects() if issubclass(type(item), io.IOBase)]
    flushes = [file.flush for file in files if type(file).__module__ == "_io"]
    closes = [file.close for file in files if type(file).__module__ != "_io"]
    for call in (*flushes, *closes, *flushes):
        with contextlib.suppress(Exception):
            call()
