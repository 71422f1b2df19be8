"""TCP proxy on loopback that can stall, and reset connections in mid-stream."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Callable

_PIECE = 1 << 16
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


class FaultyProxy:
    """Carries connections to a port of this host; a thread of its own does. Also a context
    manager."""

    def __init__(self, target_port: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds, for the length of a stall."""
        self.resets = 0
        """Connections that were reset."""
        self._target_port = target_port
        self._clock = clock
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._stalled_until = -math.inf
        self._left: int | None = None
        """Bytes from the server before every connection is reset; None: it is not to be."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._carriers: set[asyncio.Task[None]] = set()
        """One for each connection."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="chaos-proxy", daemon=True
        )
        self._thread.start()
        if not self._begun.wait(_START_SECONDS):
            raise TimeoutError("the proxy did not start")

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @property
    def stalled(self) -> bool:
        return self._clock() < self._stalled_until

    def stall(self, seconds: float) -> None:
        """Carries nothing from now on for so long, in neither direction."""
        self._stalled_until = self._clock() + seconds

    def reset(self, after_bytes: int) -> None:
        """Resets every connection once so many more bytes have come from the server."""
        self._left = after_bytes

    def close(self) -> None:
        """Ends every connection, and the thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._carry, sock=self._listener, limit=_PIECE)
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        await self._over.wait()
        server.close()
        self._stalled_until = -math.inf
        self._drop()
        await asyncio.sleep(_LOOK_SECONDS)  # for the last that was accepted
        await asyncio.gather(*self._carriers)

    async def _carry(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        writers = {to_client}
        carrier = asyncio.current_task()
        assert carrier is not None
        self._carriers.add(carrier)
        try:
            await self._wait_while_stalled()
            from_server, to_server = await asyncio.open_connection(
                "127.0.0.1", self._target_port, limit=_PIECE
            )
            writers.add(to_server)
            if self._over.is_set():
                return
            self._writers |= writers
            pumps = [
                asyncio.create_task(self._pump(from_client, to_server)),
                asyncio.create_task(self._pump(from_server, to_client, counted=True)),
            ]
            try:
                # Either side's end is the end of both.
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # nobody listens there: the client meets a connection that ends at once
        finally:
            self._writers -= writers
            self._carriers.discard(carrier)
            for writer in writers:
                writer.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        counted: bool = False,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_PIECE):
                await self._wait_while_stalled()
                if counted and self._left is not None:
                    if self._left < len(data):
                        sink.write(data[: self._left])
                        self._left = None
                        self._drop()
                        return
                    self._left -= len(data)
                sink.write(data)
                await sink.drain()

    def _drop(self) -> None:
        """Resets every connection: what the kernel still holds for a peer is thrown away."""
        for writer in self._writers:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        self.resets += len(self._writers) // 2
        self._writers = set()

    async def _wait_while_stalled(self) -> None:
        while self.stalled:
            await asyncio.sleep(_LOOK_SECONDS)


__all__ = ["FaultyProxy"]
