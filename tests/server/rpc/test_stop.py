"""Stopping a server: only streams that can still end normally are waited for."""

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

import infeed
from infeed.v1 import stream_pb2
from infeed_server.http2 import connection as connection_module
from infeed_server.http2 import receiver
from infeed_server.rpc import server as server_module

LONG_SECONDS = 3600.0
"""Longer than any test: a stop with this grace returns before it ends, or the test fails."""

LARGE_BATCH = 1 << 17
"""Samples of a batch of 1 MiB; 20 such batches exceed the socket buffers."""

MAX_WINDOW = (1 << 31) - 1


class StalledClient:
    """An HTTP/2 client that does not read; `window` is its flow-control window."""

    def __init__(self, port: int, window: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
        self._h2.local_settings = h2.settings.Settings(client=True, initial_values={code: window})
        self._h2.initiate_connection()
        if window > 1 << 16:
            self._h2.increment_flow_control_window(MAX_WINDOW - (1 << 16) + 1)
        self._flush()

    def open_stream(self, *messages: stream_pb2.StreamBatchesRequest) -> None:
        """Opens a call, sends messages on it, and leaves it open."""
        stream_id = self._h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", "s")]
        path = (":path", "/infeed.v1.FeedService/StreamBatches")
        self._h2.send_headers(stream_id, [*headers, path, ("content-type", "application/grpc")])
        for message in messages:
            data = message.SerializeToString()
            self._h2.send_data(stream_id, b"\0" + len(data).to_bytes(4, "big") + data)
        self._flush()

    def await_settings(self) -> None:
        """Waits for the server's first bytes without reading them."""
        assert self._socket.recv(1, socket.MSG_PEEK)

    def read_to_end(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self._socket.recv(1 << 20):
                pass

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())


@pytest.fixture
def connect_stalled(live: Any) -> Iterator[Callable[[int], StalledClient]]:
    """Connects a stalled client to the server `live`, with the given window."""
    clients: list[StalledClient] = []

    def connect(window: int) -> StalledClient:
        clients.append(StalledClient(live.server.port, window))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def requests(count: int) -> Iterator[stream_pb2.StreamBatchesRequest]:
    opening = stream_pb2.StreamOpen(pipeline="held", batch_size=LARGE_BATCH)
    yield stream_pb2.StreamBatchesRequest(open=opening)
    for number in range(count):
        batch = stream_pb2.BatchRequest(
            request_id=number, start=number * LARGE_BATCH, count=LARGE_BATCH
        )
        yield stream_pb2.StreamBatchesRequest(batch=batch)


def start_stop(live: Any) -> threading.Thread:
    """Starts a stop with a long grace."""
    thread = threading.Thread(target=live.server.stop, args=(LONG_SECONDS,), daemon=True)
    thread.start()
    return thread


def test_stop_does_not_wait_for_connections_without_streams(
    live: Any, connect_stalled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the ping timeout would end the connection, and a stop that waits for it.
    monkeypatch.setattr(receiver, "SERVER_PING_INTERVAL_SECONDS", LONG_SECONDS)
    with socket.create_connection(("127.0.0.1", live.server.port), 60) as silent:
        client = connect_stalled(MAX_WINDOW)
        # The server's settings show that the connection runs; else the stop would abort it.
        assert silent.recv(1 << 16)
        client.await_settings()
        thread = start_stop(live)
        client.read_to_end()
        with contextlib.suppress(ConnectionError):
            while silent.recv(1 << 16):
                pass
        thread.join(100)
        assert not thread.is_alive()


@pytest.mark.parametrize("window", [MAX_WINDOW, 100], ids=["full socket", "closed window"])
def test_stop_ends_after_the_send_timeout_of_stalled_clients(
    live: Any, connect_stalled: Any, monkeypatch: pytest.MonkeyPatch, window: int, eventually: Any
) -> None:
    monkeypatch.setattr(receiver, "SERVER_PING_INTERVAL_SECONDS", 0.3)
    monkeypatch.setattr(receiver, "SERVER_PING_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(server_module, "_SEND_TIMEOUT_SECONDS", 0.3)
    connect_stalled(window).open_stream(*requests(20))
    eventually(lambda: len(live.held.batches) >= 1, "a batch is ready")
    thread = start_stop(live)
    thread.join(100)
    assert not thread.is_alive()
    assert live.gauge("streams") == 0
    assert live.held.sent < 20


def test_stop_waits_only_for_open_streams(
    live: Any, connect_stalled: Any, channel: grpc.Channel, new_call: Any, eventually: Any
) -> None:
    health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(health).status == health_pb2.HealthCheckResponse.SERVING
    live.held.held = True
    call = new_call().open().request(0)
    assert call.next().HasField("opened")
    connect_stalled(MAX_WINDOW)
    eventually(lambda: live.gauge("queued_requests") == 1, "the request is queued")
    thread = start_stop(live)
    assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
    eventually(lambda: live.server._stopping, "the stop has begun")
    assert call.next().HasField("draining")
    live.held.held = False
    live.held.release()
    assert call.next().HasField("header")
    assert call.next().HasField("chunk")
    assert call.request(4).next().HasField("header")  # an open stream continues
    assert thread.is_alive()
    call.half_close()
    thread.join(100)
    assert not thread.is_alive()
    encoders = live.server._encoder._pool._threads
    assert encoders
    assert not any(each.is_alive() for each in encoders)


def test_call_before_the_goaway_is_refused(live: Any, new_call: Any) -> None:
    assert new_call().open().next().HasField("opened")
    live.server._admission.stop()  # as before the first connection is drained
    answers, error = new_call().open().rest()
    assert not answers
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "the server is shutting down"


def test_connection_accepted_during_stop_is_aborted(
    live: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap = live.server._wrap

    def wrap_during_stop(accepted: socket.socket) -> Any:
        live.server._stopping = True
        return wrap(accepted)

    monkeypatch.setattr(live.server, "_wrap", wrap_during_stop)
    # Else the ping timeout would end the connection too.
    monkeypatch.setattr(receiver, "SERVER_PING_INTERVAL_SECONDS", LONG_SECONDS)
    connection = socket.create_connection(("127.0.0.1", live.server.port), 60)
    with connection, contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    eventually(lambda: not len(live.server._admission.connections), "it is no longer counted")


def test_feed_behind_a_proxy_leaves_a_server_that_drains(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module.Connection, "drain", lambda self: None)  # no GOAWAY
    with infeed.connect(live.address, "held", prefetch_bytes=1, reconnect_timeout=0.1) as feed:
        next(feed)
        thread = start_stop(live)
        with pytest.raises(infeed.ServerUnavailableError, match="no reconnect within"):
            for _ in feed:
                pass
        thread.join(100)
        assert not thread.is_alive()


def test_stream_that_is_open_after_the_grace_period_ends_with_a_status(
    live: Any, new_call: Any, error_of: Any
) -> None:
    live.held.held = True
    call = new_call().open().request(0)
    assert call.next().HasField("opened")
    thread = threading.Thread(target=live.server.stop, args=(0.2,))
    thread.start()
    assert call.next().HasField("draining")
    responses, error = call.rest()
    thread.join()
    assert responses == []
    code, reason = error_of(error)
    assert code == "UNAVAILABLE"
    assert isinstance(reason, infeed.ServerUnavailableError)
    assert "shutting down" in str(reason)


def test_watch_of_the_health_ends_with_a_status(live: Any, channel: grpc.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    live.server.stop(0.2)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError, match="the server is shutting down") as caught:
        next(watch)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_stop_leaves_it_to_clients_to_close_connections_without_streams(
    live: Any, connect_stalled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_CLOSE_TIMEOUT_SECONDS", LONG_SECONDS)
    client = connect_stalled(MAX_WINDOW)
    client.await_settings()
    thread = start_stop(live)
    thread.join(0.2)
    assert thread.is_alive()
    client.close()
    thread.join(100)
    assert not thread.is_alive()
