"""A live connection in this process, and h2's client side as its scripted peer."""

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
from infeed_server.http2.refusals import Refusal
from infeed_server.http2.socket import Buffer, ServerSocket
from infeed_server.http2.stream import Stream

TIMEOUT_SECONDS = 60.0
"""Deadline of a wait: a test that meets it hangs, however slow the machine."""

E = TypeVar("E", bound=h2.events.Event)


class LenientStateMachine(h2.connection.H2ConnectionStateMachine):
    """Keeps open streams after a GOAWAY, as RFC 9113 requires and h2 does not."""

    def process_input(self, input_: h2.connection.ConnectionInputs) -> list[h2.events.Event]:
        if input_ is h2.connection.ConnectionInputs.RECV_GOAWAY:
            return []
        return super().process_input(input_)


class Peer:
    """An HTTP/2 client that sends and reads only when a test calls it."""

    def __init__(self, connection: socket.socket, settings: dict[Any, int] | None = None) -> None:
        connection.settimeout(TIMEOUT_SECONDS)
        self.socket = connection
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.state_machine = LenientStateMachine()
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings or {})
        self.h2.max_inbound_frame_size = self.h2.local_settings.max_frame_size
        self.events: list[h2.events.Event] = []
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def open(self, path: str = "/s/m", *more: tuple[str, str], end: bool = False) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "s")]
        content = ("content-type", "application/grpc")
        self.h2.send_headers(stream_id, [*headers, content, *more], end_stream=end)
        self.flush()
        return stream_id

    def send_data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        self.h2.send_data(stream_id, data, end_stream=end)
        self.flush()

    def grow_window(self, count: int, stream_id: int | None = None) -> None:
        self.h2.increment_flow_control_window(count, stream_id)
        self.flush()

    def update_settings(self, **values: int) -> None:
        codes = h2.settings.SettingCodes
        self.h2.update_settings({codes[name.upper()]: value for name, value in values.items()})
        self.flush()

    def reset(self, stream_id: int, code: int = 8) -> None:
        self.h2.reset_stream(stream_id, code)
        self.flush()

    def read(self) -> bool:
        """Reads some bytes; returns False at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            return False
        self.events += self.h2.receive_data(data)
        if data:
            with contextlib.suppress(ConnectionError):
                self.flush()
        return bool(data)

    def expect(self, kind: type[E], **fields: Any) -> E:
        """Reads until there is such an event; removes and returns it."""
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

    def receive(self, stream_id: int, count: int) -> bytes:
        """Returns `count` bytes of a stream, and acknowledges them."""
        data = b""
        while len(data) < count:
            event = self.expect(h2.events.DataReceived, stream_id=stream_id)
            data += event.data or b""
            self.h2.acknowledge_received_data(event.flow_controlled_length, stream_id)
            self.flush()
        return data

    def read_to_end(self) -> None:
        while self.read():
            pass


class RunningConnection:
    """A connection that runs on its own thread, and the streams that were opened on it."""

    admits = True
    """Whether its streams count as authenticated calls."""

    def __init__(self, accepted: socket.socket, send_timeout: float) -> None:
        self.streams: queue.SimpleQueue[Stream] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.socket = ServerSocket(accepted, send_timeout)
        self.refused: list[Refusal] = []
        self.connection = Connection(
            self.socket, "peer", self._on_stream, on_refused=self.refused.append
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _on_stream(self, stream: Stream) -> None:
        if self.admits:
            stream.admit(authenticated=True)
        self.streams.put(stream)

    def stream(self) -> Stream:
        return self.streams.get(timeout=TIMEOUT_SECONDS)

    def ended(self) -> bool:
        """Waits for the end; returns whether it came without an error."""
        self.thread.join(TIMEOUT_SECONDS)
        return not self.thread.is_alive() and self.error is None

    def _run(self) -> None:
        try:
            self.connection.run()
        except BaseException as error:  # noqa: BLE001 - asserted on the test's thread
            self.error = error


class Background:
    """A call on its own thread."""

    def __init__(self, function: Callable[..., Any], *values: Any) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, *values), daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(TIMEOUT_SECONDS)
        assert self.is_done, "the call hangs"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self, function: Callable[..., Any], *values: Any) -> None:
        try:
            self._result = function(*values)
        except BaseException as error:  # noqa: BLE001 - raised on the test's thread
            self._error = error


class ScriptedSocket(ServerSocket):
    """A socket that receives what its script contains, and stores what is sent.

    Each step of the script is bytes, `TimeoutError`, or a function that returns one of them. The
    connection ends after the last step.
    """

    def __init__(self, *script: Any) -> None:
        self.encrypted = False
        self.timeouts: list[float] = []
        """The timeout of each `receive`."""
        self.sent = bytearray()
        self._script = list(script)

    def receive(self, timeout: float) -> bytes:
        self.timeouts.append(timeout)
        step = self._script.pop(0) if self._script else b""
        step = step() if callable(step) and step is not TimeoutError else step
        if step is TimeoutError:
            raise TimeoutError
        return bytes(step)

    def send(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self.sent += buffer

    def is_writable(self) -> bool:
        return True

    def abort(self) -> None: ...

    def close(self) -> None: ...


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


@pytest.fixture
def scripted_socket() -> type[ScriptedSocket]:
    return ScriptedSocket


@pytest.fixture
def peer_of() -> type[Peer]:
    """Makes the peer of a connected socket."""
    return Peer


@pytest.fixture
def background() -> type[Background]:
    return Background


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair() if request.param == "unix" else tcp_pair()
    with near, far:
        yield near, far


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[RunningConnection, Peer]]]:
    """Starts a connection and its peer: `serve(settings={code: value}, send_timeout=40)`."""
    started: list[tuple[RunningConnection, Peer]] = []

    def start(
        settings: dict[Any, int] | None = None, send_timeout: float = 40.0, *, unix: bool = False
    ) -> tuple[RunningConnection, Peer]:
        near, far = socket.socketpair() if unix else tcp_pair()
        server = RunningConnection(far, send_timeout)
        started.append((server, Peer(near, settings)))
        return started[-1]

    yield start
    for server, peer in started:
        peer.socket.close()
        server.connection.abort()
        server.thread.join(TIMEOUT_SECONDS)
        assert not server.thread.is_alive()
        assert server.error is None


@pytest.fixture
def served(serve: Callable[..., tuple[RunningConnection, Peer]]) -> tuple[RunningConnection, Peer]:
    return serve()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds: `eventually(condition, what)`; `what` may be a function."""
    return wait_until
