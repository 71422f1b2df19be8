"""Pipes that hold the delayed bytes of a proxy, as pages of the kernel."""

from __future__ import annotations

import contextlib
import fcntl
import os

_PIPE_BYTES = 1 << 20
_MAX_PIPES = 256
"""Together 256 MiB of delayed pages: the proxy must not limit the bytes in flight."""


class Pipe:
    """Pages of one chunk."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Fails without privileges once the user's pipes hold 64 MiB; a smaller pipe also works.
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.write_end)


class PipePool:
    """Reusable empty pipes, up to `_MAX_PIPES` in use."""

    def __init__(self) -> None:
        self._free: list[Pipe] = []
        self._open_count = 0

    def acquire(self) -> Pipe | None:
        """Returns an empty pipe; None while all are in use."""
        if self._free:
            return self._free.pop()
        if self._open_count == _MAX_PIPES:
            return None
        self._open_count += 1
        return Pipe()

    def release(self, pipe: Pipe, *, is_empty: bool) -> None:
        if is_empty:
            self._free.append(pipe)
        else:
            self._open_count -= 1
            pipe.close()

    def close(self) -> None:
        """Closes the empty pipes."""
        while self._free:
            self._free.pop().close()
