"""`infeed serve` as a process of its own, for as long as a block lasts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infeed.errors import ServerUnavailableError

_STOP_SECONDS = 15.0


@contextmanager
def serving(definition: Path, log: Path) -> Iterator[str]:
    """Serves a YAML file on a free loopback port and gives its address.

    The server's log goes to a file; when the server does not start, the error ends with it.
    """
    free = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "infeed", "serve", str(definition), *free]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True)  # noqa: S603
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"serving on (\S+)", line)
            if found is None:
                process.wait(_STOP_SECONDS)
                tail = "\n".join(log.read_text().splitlines()[-20:])
                raise ServerUnavailableError(f"the server did not start:\n{tail}")
            yield found[1]
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
