"""`infeed serve` in a child process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infeed.errors import ServerUnavailableError

_EXIT_TIMEOUT_SECONDS = 15.0


@contextmanager
def serving(definition: Path, log: Path) -> Iterator[str]:
    """Serves a YAML file on a free loopback port within the block, and yields its address.

    The server's log goes to a file; if the server does not start, the error has its last lines.
    """
    ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "infeed", "serve", str(definition), *ports]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)  # noqa: S603
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.search(r"serving on (\S+)", line)
            if ready is None:
                process.wait(_EXIT_TIMEOUT_SECONDS)
                tail = "\n".join(log.read_text().splitlines()[-20:])
                raise ServerUnavailableError(f"the server did not start:\n{tail}")
            yield ready[1]
        finally:
            process.terminate()
            try:
                process.wait(_EXIT_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
