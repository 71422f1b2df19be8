"""A live connection in this process, and h2's client side as its peer, driven by hand."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from tests.harness.waiting import wait_until

from infeed_server.http2.connection import Connection
from infeed_server.http2.stream import Stream
from infeed_server.http2.wire import Piece, Wire

SECONDS = 60.0
"""After which a test has failed: a hang, not a slow machine."""

E = TypeVar("E", bound=h2.events.Event)


class Lenient(h2.connection.H2ConnectionStateMachine):
    """As RFC 9113 has it, and h2 has not: open streams go on after a GOAWAY."""

    def process_input(self, input_: h2.connection.ConnectionInputs) -> list[h2.events.Event]:
        if input_ is h2.connection.ConnectionInputs.RECV_GOAWAY:
            return []
        return super().process_input(input_)


class Peer:
    """A client of HTTP/2 that says what it is told to, and reads when it is told to."""

    def __init__(self, connection: socket.socket, settings: dict[Any, int] | None = None) -> None:
        connection.settimeout(SECONDS)
        self.socket = connection
        self.machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.machine.state_machine = Lenient()
        self.machine.local_settings = h2.settings.Settings(
            client=True, initial_values=settings or {}
        )
        self.machine.max_inbound_frame_size = self.machine.local_settings.max_frame_size
        self.events: list[h2.events.Event] = []
        self.machine.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.machine.data_to_send())

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def open(self, path: str = "/s/m", *more: tuple[str, str], end: bool = False) -> int:
        number = self.machine.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "s")]
        content = ("content-type", "application/grpc")
        self.machine.send_headers(number, [*headers, content, *more], end_stream=end)
        self.flush()
        return number

    def data(self, number: int, data: bytes, *, end: bool = False) -> None:
        self.machine.send_data(number, data, end_stream=end)
        self.flush()

    def window(self, count: int, number: int | None = None) -> None:
        self.machine.increment_flow_control_window(count, number)
        self.flush()

    def settings(self, **values: int) -> None:
        codes = h2.settings.SettingCodes
        self.machine.update_settings({codes[name.upper()]: it for name, it in values.items()})
        self.flush()

    def reset(self, number: int, code: int = 8) -> None:
        self.machine.reset_stream(number, code)
        self.flush()

    def read(self) -> bool:
        """Takes some bytes in; False at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            return False
        self.events += self.machine.receive_data(data)
        if data:
            with contextlib.suppress(ConnectionError):
                self.flush()
        return bool(data)

    def expect(self, kind: type[E], **fields: Any) -> E:
        """Reads until there is such an event, which it takes away."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and all(
                    getattr(event, name) == value for name, value in fields.items()
                ):
                    self.events.remove(event)
                    return event
            assert self.read(), f"the connection ended before {kind.__name__} {fields}"

    def has(self, kind: type[h2.events.Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    def receive(self, number: int, count: int) -> bytes:
        """So many bytes of a stream, for which the windows are opened again."""
        data = b""
        while len(data) < count:
            event = self.expect(h2.events.DataReceived, stream_id=number)
            data += event.data or b""
            self.machine.acknowledge_received_data(event.flow_controlled_length, number)
            self.flush()
        return data

    def read_to_end(self) -> None:
        while self.read():
            pass


class Served:
    """A connection that runs, and the streams that it has taken."""

    def __init__(self, accepted: socket.socket, send_seconds: float) -> None:
        self.streams: queue.SimpleQueue[Stream] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.wire = Wire(accepted, send_seconds)
        self.connection = Connection(self.wire, "peer", self.streams.put)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stream(self) -> Stream:
        return self.streams.get(timeout=SECONDS)

    def ended(self) -> bool:
        """Waits for the end; whether it came, and `run` raised nothing."""
        self.thread.join(SECONDS)
        return not self.thread.is_alive() and self.error is None

    def _run(self) -> None:
        try:
            self.connection.run()
        except BaseException as error:  # noqa: BLE001 - told in the test's thread
            self.error = error


class Background:
    """A call in a thread of its own."""

    def __init__(self, function: Callable[..., Any], *values: Any) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, *values), daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(SECONDS)
        assert self.is_done, "it hangs"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self, function: Callable[..., Any], *values: Any) -> None:
        try:
            self._result = function(*values)
        except BaseException as error:  # noqa: BLE001 - told in the test's thread
            self._error = error


class PlayedWire(Wire):
    """A wire without a socket: gives what its script says, and keeps what is sent.

    Each step of the script is bytes, `TimeoutError`, or a function that returns one of them. The
    wire has ended after the last.
    """

    def __init__(self, *script: Any) -> None:
        self.secure = False
        self.timeouts: list[float] = []
        """How long each `receive` was to wait."""
        self.sent = bytearray()
        self._script = list(script)

    def receive(self, timeout: float) -> bytes:
        self.timeouts.append(timeout)
        step = self._script.pop(0) if self._script else b""
        step = step() if callable(step) and step is not TimeoutError else step
        if step is TimeoutError:
            raise TimeoutError
        return bytes(step)

    def send(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.sent += piece

    def is_writable(self) -> bool:
        return True

    def cut(self) -> None:
        """Nothing waits on it."""

    def close(self) -> None:
        """It holds nothing."""


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


@pytest.fixture
def played_wire() -> type[PlayedWire]:
    return PlayedWire


@pytest.fixture
def background() -> type[Background]:
    return Background


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair() if request.param == "unix" else tcp_pair()
    with near, far:
        yield near, far


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Served, Peer]]]:
    """A connection and its peer: `serve(settings={code: value}, send_seconds=40)`."""
    made: list[tuple[Served, Peer]] = []

    def start(
        settings: dict[Any, int] | None = None, send_seconds: float = 40.0, *, unix: bool = False
    ) -> tuple[Served, Peer]:
        near, far = socket.socketpair() if unix else tcp_pair()
        served = Served(far, send_seconds)
        made.append((served, Peer(near, settings)))
        return made[-1]

    yield start
    for served, peer in made:
        peer.socket.close()
        served.connection.cut()
        served.thread.join(SECONDS)
        assert not served.thread.is_alive()
        assert served.error is None


@pytest.fixture
def served(serve: Callable[..., tuple[Served, Peer]]) -> tuple[Served, Peer]:
    return serve()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds, `eventually(condition, what)`; `what` may be a function."""
    return wait_until
