"""Deadlines of calls, calls without a request, connections without a call, and old connections."""

from __future__ import annotations

import socket
import threading
from typing import Any

import grpc
import pytest

import infeed
from infeed.v1 import stream_pb2
from infeed_server.rpc import interceptor
from infeed_server.rpc import server as rpc_server
from infeed_server.rpc.limits import Limits
from infeed_server.rpc.server import SERVICE

STREAM = f"/{SERVICE}/StreamBatches"
GET = f"/{SERVICE}/GetPipeline"
CHECK = "/grpc.health.v1.Health/Check"
SECONDS = 0.2
OPEN = stream_pb2.StreamBatchesRequest(
    open=stream_pb2.StreamOpen(pipeline="held")
).SerializeToString()


@pytest.mark.parametrize("method", [STREAM, GET, CHECK])
def test_call_without_a_request_ends(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(interceptor, "FIRST_MESSAGE_TIMEOUT_SECONDS", SECONDS)
    client = connect(start())
    client.await_end(client.call(method))


@pytest.mark.parametrize("begin", [b"", b"PRI * HTTP", None])
def test_connection_without_a_call_ends(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, begin: bytes | None
) -> None:
    monkeypatch.setattr(rpc_server, "_HANDSHAKE_TIMEOUT_SECONDS", SECONDS)
    monkeypatch.setattr(rpc_server, "_IDLE_SECONDS", SECONDS)
    live = start()
    if begin is None:
        connect(live).read_to_end()
    else:
        with socket.create_connection(("127.0.0.1", live.server.port), 60) as silent:
            silent.sendall(begin)
            while silent.recv(1 << 16):
                pass


def test_feed_moves_from_old_connections_without_loss(start: Any) -> None:
    live = start(limits=Limits(max_connection_age=1.0))
    with infeed.connect(live.address, "held", prefetch_bytes=1000) as feed:
        numbers: list[int] = []
        while len(live.held.sessions) < 3:  # each on a connection of its own
            numbers += next(feed)["x"].tolist()
    assert numbers == list(range(len(numbers)))


def test_calls_are_counted_by_method_and_status(live: Any, eventually: Any) -> None:
    def count(method: str, status: str) -> float:
        return float(live.reported("infeed_calls", method, status))

    ended = threading.Event()
    with grpc.insecure_channel(live.address) as channel:
        channel.unary_unary(CHECK)(b"", timeout=60)
        for method in ("/a/b", "/a/c"):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary(method)(b"", timeout=60)
        call = channel.stream_stream(STREAM)(iter(ended.wait, True), timeout=60)
        eventually(lambda: live.server._admission.open_calls("streams") == 1, "it is open")
        call.cancel()
        ended.set()
        # C-core may report the end of the requests before it reports that the call was cancelled.
        ends = ("CANCELLED", "INVALID_ARGUMENT")
        eventually(lambda: sum(count(STREAM, end) for end in ends) == 1, "it is counted")
    eventually(lambda: count(CHECK, "OK") == 1, "it is counted")
    eventually(lambda: count("unknown", "UNIMPLEMENTED") == 2, "both are counted")
    check = CHECK.removeprefix("/")
    assert live.reported("grpc_server_call_started", "other") == 2
    assert live.reported("grpc_server_call_started", check) == 1
    size = "grpc_server_call_{}_total_compressed_message_size_bytes"
    assert live.reported("grpc_server_call_duration_seconds", check, "OK") > 0
    assert live.reported(size.format("sent"), check, "OK") > 0
    assert live.reported(size.format("rcvd"), check, "OK") == 0
