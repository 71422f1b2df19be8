"""TCP proxy on loopback that can stall and reset connections."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import threading
import time

_CHUNK_BYTES = 1 << 16
_START_TIMEOUT_SECONDS = 120.0
_POLL_INTERVAL_SECONDS = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


class FaultyProxy:
    """Forwards connections to a local port, on its own thread. Also a context manager."""

    def __init__(self, target_port: int) -> None:
        self.resets = 0
        """Number of reset connections."""
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._stalled_until = -math.inf
        self._bytes_until_reset: int | None = None
        """Remaining bytes from the server before connections are reset; None: no reset."""
        self._is_one_reset = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        """One task per connection."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="chaos-proxy", daemon=True
        )
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_SECONDS):
            raise TimeoutError(f"the proxy did not start within {_START_TIMEOUT_SECONDS:g} s")

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @property
    def stalled(self) -> bool:
        return time.monotonic() < self._stalled_until

    def stall(self, seconds: float) -> None:
        """Forwards nothing in either direction for this time."""
        self._stalled_until = time.monotonic() + seconds

    def reset(self, after_bytes: int, *, one: bool = False) -> None:
        """Resets every connection after this number of further bytes from the server, or only the
        one that brings the last of them."""
        self._is_one_reset, self._bytes_until_reset = one, after_bytes

    def close(self) -> None:
        """Resets every connection and ends the thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, sock=self._listener, limit=_CHUNK_BYTES)
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._stopping.wait()
        server.close()
        self._stalled_until = -math.inf
        self._reset_connections(self._writers)
        # Lets the last accepted connection register its task.
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        await asyncio.gather(*self._tasks)

    async def _forward(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        writers = {to_client}
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._wait_while_stalled()
            from_server, to_server = await asyncio.open_connection(
                "127.0.0.1", self._target_port, limit=_CHUNK_BYTES
            )
            writers.add(to_server)
            if self._stopping.is_set():
                return
            self._writers |= writers
            directions = [
                asyncio.create_task(self._copy(from_client, to_server)),
                asyncio.create_task(self._copy(from_server, to_client, is_counted=True)),
            ]
            try:
                # When one side ends, both are closed.
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
        except OSError:
            pass  # no server listens on the port: the client's connection ends at once
        finally:
            self._writers -= writers
            self._tasks.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        is_counted: bool = False,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                await self._wait_while_stalled()
                if is_counted and self._bytes_until_reset is not None:
                    if self._bytes_until_reset < len(data):
                        sink.write(data[: self._bytes_until_reset])
                        self._bytes_until_reset = None
                        self._reset_connections({sink} if self._is_one_reset else self._writers)
                        return
                    self._bytes_until_reset -= len(data)
                sink.write(data)
                await sink.drain()

    def _reset_connections(self, writers: set[asyncio.StreamWriter]) -> None:
        """Resets connections, which discards the data in the kernel's buffers."""
        for writer in writers:
            connection = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # it has just ended
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        self.resets += -(-len(writers) // 2)
        self._writers -= writers

    async def _wait_while_stalled(self) -> None:
        while self.stalled:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
