"""gRPC transport: targets, retries and errors."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.waiting import HANG_SECONDS, Clock, blocked_in, until

from infeed.http2.tls_config import TLS
from infeed.rpc import channel
from infeed.rpc.channel import GrpcTransport
from infeed.rpc.credentials import Credentials
from infeed.shared.errors import (
    AuthenticationError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
)
from infeed.testing import FakeTransport


@pytest.fixture
def unavailable() -> Iterator[str]:
    """An address where no server listens or can start to listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_list_reads_all_pages(serve: Any, arrays: Any) -> None:
    fakes = [FakeTransport(arrays, name=f"p{index}") for index in range(5)]
    transport = GrpcTransport(serve(*fakes).address)
    assert [spec.name for spec in transport.list_pipelines()] == ["p0", "p1", "p2", "p3", "p4"]
    transport.close()


def test_pipeline_of_another_server_is_found(serve: Any, fake: FakeTransport, arrays: Any) -> None:
    newer = FakeTransport(arrays, name="newer")
    transport = GrpcTransport(f"{serve(fake).address},{serve(newer).address}")
    for served in (newer, fake, newer):
        assert transport.get_pipeline(served.spec.name) == served.spec
    with pytest.raises(PipelineNotFoundError, match="no pipeline 'other'"):
        transport.get_pipeline("other")
    transport.close()


def test_description_of_another_pipeline_is_refused(
    serve: Any, fake: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = GrpcTransport(serve(fake).address)
    request = channel.service.GetPipelineRequest(name="fake")
    monkeypatch.setattr(channel.service, "GetPipelineRequest", lambda name: request)
    with pytest.raises(ProtocolError, match="returned the pipeline 'fake' instead of 'other'"):
        transport.get_pipeline("other")
    transport.close()
    with pytest.raises(ServerUnavailableError, match="was closed"):
        transport.get_pipeline("fake")


def test_tls_files_that_became_invalid_are_retryable(pki: Any, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Path(pki.ca).read_bytes())
    transport = GrpcTransport("127.0.0.1:1", Credentials(tls=TLS(ca=ca)))
    ca.write_text("invalid")
    with pytest.raises(ServerUnavailableError, match=r"ca\.pem: holds no certificate"):
        transport.open_stream("127.0.0.1:1", iter(()), lambda: None)
    transport.close()


def test_unavailable_error_names_target_timeout_and_reason(
    unavailable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(channel, "time", clock)
    transport = GrpcTransport(unavailable)
    with pytest.raises(
        ServerUnavailableError, match=rf"{unavailable} within 4 s.*[Cc]onn.*refused"
    ):
        transport.get_pipeline("fake", timeout=4)
    assert clock.now == pytest.approx(1004)
    (warning,) = caplog.messages
    assert warning.startswith(f"waiting for {unavailable}, 4 s at most: no server at ")
    assert clock.pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 0.45])
    transport.close()


def test_call_waits_for_the_server_to_start(
    serve: Any, fake: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(fake)
    server.stop()
    clock = Clock(on_sleep=lambda: len(clock.pauses) == 3 and server.start())
    monkeypatch.setattr(channel, "time", clock)
    transport = GrpcTransport(server.address)
    assert transport.get_pipeline("fake", timeout=HANG_SECONDS) == fake.spec
    assert len(clock.pauses) == 3
    transport.close()


def test_close_ends_a_waiting_call() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        transport = GrpcTransport(f"127.0.0.1:{silent.getsockname()[1]}")
        call = transport.open_stream(transport.servers()[0], iter(()), lambda: None)
        reader = threading.current_thread()

        def close() -> None:
            until(lambda: blocked_in(reader, "_wait", "receive"))
            transport.close()

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(ServerUnavailableError, match="was closed"):  # not: no ping answered
            call.next()
        call.close()
        closer.join()


def resolve_hosts(monkeypatch: pytest.MonkeyPatch, hosts: dict[str, str]) -> None:
    """Makes infeed.example.org resolve to the hosts, which are keys; values are their addresses."""
    real = socket.getaddrinfo

    def getaddrinfo(name: str, port: int, **options: Any) -> Any:
        names = list(hosts) if name == "infeed.example.org" else [hosts.get(name, name)]
        return [item for host in names for item in real(host, port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_each_host_is_called_by_the_name_of_the_target(
    pki: Any, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the verification of the certificate, and as HTTP's authority."""
    names: list[str] = []
    sent: list[dict[str, str]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.elsewhere, pki.elsewhere_key)
    context.set_alpn_protocols(["h2"])
    context.sni_callback = lambda _, name, __: names.append(name)

    def script(talk: Any) -> None:
        with context.wrap_socket(talk.socket, server_side=True) as talk.socket:
            talk.greet()
            sent.append(talk.headers)
            trailers = [("grpc-status", "5")]
            talk.answer(
                [(":status", "200"), ("content-type", "application/grpc"), *trailers], end=True
            )
            talk.until_closed()

    port = peer(script).rpartition(":")[2]
    resolve_hosts(monkeypatch, {"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.1"})
    target = f"dns:///infeed.example.org:{port}"
    transport = GrpcTransport(target, Credentials("t", TLS(ca=pki.ca)))
    with pytest.raises(ServerError, match="NOT_FOUND"):
        transport.get_pipeline("fake")
    servers = transport.servers()
    assert servers == (f"127.0.0.1:{port}", f"127.0.0.2:{port}")
    for server in servers:
        call = transport.open_stream(server, iter(()), lambda: None)
        with contextlib.closing(call), pytest.raises(ServerError, match=f"^{server} failed with"):
            call.next()
    transport.close()
    assert names == ["infeed.example.org"] * 3
    for headers in sent:
        assert headers[":authority"] == f"infeed.example.org:{port}"
        assert headers[":scheme"] == "https"
        assert headers["authorization"] == "Bearer t"


def refuse(code: int, paths: list[str]) -> Any:
    """A server that refuses every call."""

    def script(talk: Any) -> None:
        talk.greet()
        paths.append(talk.headers[":path"])
        status = [("grpc-status", str(code)), ("grpc-message", "no")]
        talk.answer([(":status", "200"), ("content-type", "application/grpc"), *status], end=True)
        talk.until_closed()

    return script


@pytest.mark.parametrize(("code", "kind"), [(16, AuthenticationError), (7, PermissionDeniedError)])
def test_refusals_of_all_servers_are_raised_at_once(peer: Any, code: int, kind: Any) -> None:
    paths: list[str] = []
    target = f"{peer(refuse(code, paths))},{peer(refuse(code, paths))}"
    transport = GrpcTransport(target)
    with pytest.raises(kind, match="no"):
        transport.get_pipeline("fake", timeout=HANG_SECONDS)
    assert len(paths) == 2  # one call each
    transport.close()


@pytest.mark.parametrize("code", [16, 7, 13, 12])
def test_server_that_refuses_is_skipped(
    peer: Any, serve: Any, fake: FakeTransport, code: int
) -> None:
    refusing = peer(refuse(code, []))
    for target in (f"{refusing},{serve(fake).address}", f"{serve(fake).address},{refusing}"):
        transport = GrpcTransport(target)
        assert transport.get_pipeline("fake", timeout=HANG_SECONDS) == fake.spec
        transport.close()
