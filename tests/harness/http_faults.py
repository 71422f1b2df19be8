"""HTTP servers on loopback that fail as object stores do, by a seeded plan.

A server runs in a thread of its own, until `close`. Its handler makes the responses, and its
`Faults` delay, replace, cut and slow them down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

_PIECE_BYTES = 64 << 10


@dataclass
class Faults:
    """What happens to responses; the rates are shares of them. It may change at any time."""

    delay: float = 0.0
    """Seconds before each response."""
    error_rate: float = 0.0
    """503, as from an overloaded store."""
    cut_rate: float = 0.0
    """The connection ends in the middle of the body."""
    slow_rate: float = 0.0
    """The body takes `slow_seconds`."""
    slow_seconds: float = 0.5
    bytes_per_second: float = 0.0
    """Of each connection; 0: no limit."""
    ignores_range: bool = False
    """The answer to a range is 200 with the whole object, as from some web servers."""
    is_down: bool = False
    """Each connection ends at once."""
    seed: int = 17
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    """Path and query."""
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes = b""


class HttpServer:
    """Answers requests with a handler's responses, after their faults. Also a context manager."""

    def __init__(
        self, handle: Callable[[Request], Awaitable[Response]], faults: Faults | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.requests: list[Request] = []
        self.sent_bytes = 0
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()
        self._listening.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str = "", part: str = "") -> int:
        """Returns how many requests had this method, and this part in their targets."""
        requests = list(self.requests)
        return sum(method in one.method and part in one.target for one in requests)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._ended.wait()
        # asyncio loses a connection that it accepted, but did not begin, before the server's end.
        self._loop.remove_reader(server.sockets[0].fileno())
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0)  # a task that never began would not close its connection
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:  # a closed one stays open while its client reads nothing
            writer.transport.abort()
        server.close()
        await asyncio.sleep(0.01)  # in which the closed connections end

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with (
            contextlib.closing(writer),
            contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
            ),
        ):
            while (request := await read_request(reader)) and not self.faults.is_down:
                self.requests.append(request)
                if self.faults.ignores_range:
                    kept = {k: v for k, v in request.headers.items() if k != "range"}
                    request = replace(request, headers=kept)
                if not await self._answer(request, writer):
                    break

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the connection may be used again."""
        faults, draw = self.faults, self.faults.random.random
        fails, cuts, slows = (draw() for _ in range(3))
        await asyncio.sleep(faults.delay)
        if fails < faults.error_rate:
            response = Response(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        else:
            response = await self._handle(request)
        head = f"HTTP/1.1 {response.status} Status\r\n"
        headers = {"content-length": str(len(response.body))}
        headers.update((name.lower(), value) for name, value in response.headers.items())
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"{head}\r\n".encode())
        body = b"" if request.method == "HEAD" else response.body
        is_cut = bool(body) and cuts < faults.cut_rate
        body = body[: len(body) // 2] if is_cut else body
        if slows < faults.slow_rate:
            await asyncio.sleep(faults.slow_seconds)
        for begin in range(0, len(body), _PIECE_BYTES):
            piece = body[begin : begin + _PIECE_BYTES]
            self.sent_bytes += len(piece)  # before the client can have it
            writer.write(piece)
            await writer.drain()
            if faults.bytes_per_second:
                await asyncio.sleep(len(piece) / faults.bytes_per_second)
        await writer.drain()
        return not is_cut


class FaultProxy(HttpServer):
    """Passes requests on to a server, which gets its own address as their host."""

    def __init__(self, port: int, faults: Faults | None = None) -> None:
        self._port = port
        super().__init__(self._forward, faults)

    async def _forward(self, request: Request) -> Response:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        headers = {
            **request.headers,
            "host": f"127.0.0.1:{self._port}",
            "connection": "close",
        }
        head = f"{request.method} {request.target} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"{head}\r\n".encode() + request.body)
        try:
            answer = await reader.read()
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")  # type: ignore[assignment]
        first, *lines = head.decode().split("\r\n")  # type: ignore[attr-defined]
        kept = {}
        for line in lines:
            name, _, value = line.partition(":")
            kept[name.lower()] = value.strip()
        if kept.pop("transfer-encoding", "") == "chunked":
            body = b"".join(_chunks(body))
        if request.method != "HEAD":
            kept.pop("content-length", None)
        kept.pop("connection", None)
        return Response(int(first.split()[1]), kept, body)


def _chunks(body: bytes) -> list[bytes]:
    """Returns the chunks of a chunked body."""
    found = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        found.append(body[:length])
        body = body[length + 2 :]
    return found


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Reads the next request of a connection; None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().strip().split("\r\n")
    method, target, _ = first.split()
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body)
