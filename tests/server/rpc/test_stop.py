"""A stop beside peers that do not read: only what can still end well is waited for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.settings
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed.v1 import stream_pb2
from infeed_server.http2 import connection as connection_module
from infeed_server.rpc import server as server_module

FOREVER = 3600.0
"""Seconds of grace: a stop that returns within the test has not waited for its end."""

LARGE = 1 << 17
"""Samples of a batch: 1 MiB, and 20 of them are more than the sockets take."""

WIDE = (1 << 31) - 1


class DeafPeer:
    """A client of HTTP/2 that sends and never reads; `window` is what it may be sent unread."""

    def __init__(self, port: int, window: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
        self._machine.local_settings = h2.settings.Settings(
            client=True, initial_values={code: window}
        )
        self._machine.initiate_connection()
        if window > 1 << 16:
            self._machine.increment_flow_control_window(WIDE - (1 << 16) + 1)
        self._flush()

    def stream(self, *messages: stream_pb2.StreamBatchesRequest) -> None:
        """Opens a call and sends these on it, not its end."""
        number = self._machine.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", "s")]
        path = (":path", "/infeed.v1.FeedService/StreamBatches")
        self._machine.send_headers(number, [*headers, path, ("content-type", "application/grpc")])
        for message in messages:
            data = message.SerializeToString()
            self._machine.send_data(number, b"\0" + len(data).to_bytes(4, "big") + data)
        self._flush()

    def await_settings(self) -> None:
        """Waits for the first bytes of the server, and leaves them unread."""
        assert self._socket.recv(1, socket.MSG_PEEK)

    def read_to_end(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self._socket.recv(1 << 20):
                pass

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        self._socket.sendall(self._machine.data_to_send())


@pytest.fixture
def deaf(live: Any) -> Iterator[Callable[[int], DeafPeer]]:
    """Connects to the server `live`, with a window of so many bytes."""
    peers: list[DeafPeer] = []

    def connect(window: int) -> DeafPeer:
        peers.append(DeafPeer(live.server.port, window))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()


def asks(count: int) -> Iterator[stream_pb2.StreamBatchesRequest]:
    opening = stream_pb2.StreamOpen(pipeline="held", batch_size=LARGE)
    yield stream_pb2.StreamBatchesRequest(open=opening)
    for number in range(count):
        batch = stream_pb2.BatchRequest(request_id=number, start=number * LARGE, count=LARGE)
        yield stream_pb2.StreamBatchesRequest(batch=batch)


def stopping(live: Any) -> threading.Thread:
    """A stop with all the grace there is, under way."""
    thread = threading.Thread(target=live.server.stop, args=(FOREVER,), daemon=True)
    thread.start()
    return thread


def test_a_stop_waits_for_no_connection_without_a_stream(
    live: Any, deaf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a peer that does not answer would be given up, and so end a stop that waits for it.
    monkeypatch.setattr(connection_module, "SERVER_PING_SECONDS", FOREVER)
    with socket.create_connection(("127.0.0.1", live.server.port), 60) as silent:
        peer = deaf(WIDE)
        # The server's settings: a connection that is not served yet would be cut by any stop.
        assert silent.recv(1 << 16)
        peer.await_settings()
        thread = stopping(live)
        peer.read_to_end()
        with contextlib.suppress(ConnectionError):
            while silent.recv(1 << 16):
                pass
        thread.join(100)
        assert not thread.is_alive()


@pytest.mark.parametrize("window", [WIDE, 100], ids=["full sockets", "a shut window"])
def test_a_stop_ends_when_the_last_peer_that_reads_nothing_was_given_up(
    live: Any, deaf: Any, monkeypatch: pytest.MonkeyPatch, window: int, eventually: Any
) -> None:
    monkeypatch.setattr(connection_module, "SERVER_PING_SECONDS", 0.3)
    monkeypatch.setattr(connection_module, "SERVER_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(server_module, "_SEND_SECONDS", 0.3)
    deaf(window).stream(*asks(20))
    eventually(lambda: len(live.held.made) >= 1, "a batch is made")
    thread = stopping(live)
    thread.join(100)
    assert not thread.is_alive()
    assert live.gauge("streams") == 0
    assert live.held.sent < 20


def test_a_stop_waits_for_a_peer_that_reads_and_then_for_no_other(
    live: Any, deaf: Any, channel: grpc.Channel, peer: Any, eventually: Any
) -> None:
    health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(health).status == health_pb2.HealthCheckResponse.SERVING
    live.held.held = True
    call = peer().open().ask(0)
    assert call.next().HasField("opened")
    deaf(WIDE)
    eventually(lambda: live.gauge("queued_requests") == 1, "the request is taken in")
    thread = stopping(live)
    assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
    eventually(lambda: live.server._stopping, "the stop has begun")
    live.held.held = False
    live.held.release()
    assert call.next().HasField("header")
    assert call.next().HasField("chunk")
    assert call.ask(4).next().HasField("header")  # an open stream goes on
    assert thread.is_alive()
    call.half_close()
    thread.join(100)
    assert not thread.is_alive()
    encoders = live.server._encoder._pool._threads
    assert encoders
    assert not any(each.is_alive() for each in encoders)


def test_a_call_between_the_stop_and_the_goaway_is_refused(live: Any, peer: Any) -> None:
    assert peer().open().next().HasField("opened")
    live.server._stopping = True  # as it is before the first connection is drained
    answers, error = peer().open().rest()
    assert not answers
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "the server is shutting down"


def test_a_connection_that_was_accepted_before_the_stop_is_cut(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = live.server._wire

    def accepted_before(accepted: socket.socket) -> Any:
        live.server._stopping = True
        return wire(accepted)

    monkeypatch.setattr(live.server, "_wire", accepted_before)
    # Else a peer that does not answer would be given up all the same.
    monkeypatch.setattr(connection_module, "SERVER_PING_SECONDS", FOREVER)
    late = socket.create_connection(("127.0.0.1", live.server.port), 60)
    with late, contextlib.suppress(ConnectionError):
        while late.recv(1 << 16):
            pass
