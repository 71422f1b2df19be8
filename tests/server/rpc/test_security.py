"""TLS, tokens and per-host limits of a server, with infeed's client and gRPC's own.

Handshakes and tokens themselves are tested in `test_tls_socket` and `test_auth`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from infeed.http2.tls_config import TLS
from infeed.rpc.channel import GrpcTransport
from infeed.rpc.credentials import Credentials
from infeed.shared.errors import (
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
)
from infeed.v1 import feed_service_pb2 as service
from infeed_server.config import reloading
from infeed_server.runtime.certificate import TLSFiles
from infeed_server.serving.auth import TokenAuthenticator, hash_token

PREFIX = "/infeed.v1.FeedService/"
ALL, HELD = "infeed_all", "infeed_held"
"""Tokens with access to all pipelines, and to `held`."""


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes the token file, which is checked for changes at each use; returns its path."""
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)
    file = tmp_path / "tokens.yaml"

    def write(**pipelines: list[str]) -> str:
        pipelines = pipelines or {"all": ["*"], "held": ["h*d"]}
        texts = {"all": ALL, "held": HELD}
        grants: list[dict[str, Any]] = [
            {"name": name, "sha256": hash_token(texts[name]), "pipelines": rights}
            for name, rights in pipelines.items()
        ]
        new = tmp_path / "new"
        new.write_text(yaml.safe_dump({"tokens": grants}))
        new.rename(file)
        return str(file)

    write()
    return write


@pytest.fixture
def files(pki: Any) -> TLSFiles:
    return TLSFiles(str(pki.server), str(pki.server_key))


@pytest.fixture
def secure_server(start: Any, tokens: Any, files: TLSFiles) -> Any:
    """Starts a server with TLS and tokens."""
    return start(
        credentials=files.credentials(),
        authenticator=TokenAuthenticator(tokens()),
    )


@pytest.fixture
def transports(pki: Any) -> Iterator[Callable[..., GrpcTransport]]:
    """Connects infeed's client: `transports(live, token, tls)`."""
    started: list[GrpcTransport] = []

    def make(live: Any, token: Any = None, tls: Any = None) -> GrpcTransport:
        started.append(GrpcTransport(live.address, Credentials(token, tls or TLS(ca=pki.ca))))
        return started[-1]

    yield make
    for server in started:
        server.close()


@pytest.fixture
def channels(pki: Any) -> Iterator[Callable[..., grpc.Channel]]:
    """Connects gRPC's client: `channels(live, token, cert)`; `cert` is a name in `pki`."""
    with contextlib.ExitStack() as stack:

        def make(live: Any, token: str | None = None, cert: str | None = None) -> grpc.Channel:
            files = (
                [getattr(pki, f"{cert}{end}").read_bytes() for end in ("_key", "")] if cert else []
            )
            credentials = grpc.ssl_channel_credentials(pki.ca.read_bytes(), *files)
            if token is not None:
                call = grpc.access_token_call_credentials(token)
                credentials = grpc.composite_channel_credentials(credentials, call)
            return stack.enter_context(
                grpc.secure_channel(f"localhost:{live.server.port}", credentials)
            )

        yield make


def get(channel: grpc.Channel, name: str, **options: Any) -> str:
    raw = service.GetPipelineRequest(name=name).SerializeToString()
    method: Any = channel.unary_unary(f"{PREFIX}GetPipeline")
    response = service.GetPipelineResponse.FromString(method(raw, timeout=20, **options))
    return response.pipeline.name


@pytest.fixture
def call_error(error_of: Any) -> Callable[[Callable[[], Any]], tuple[str, InfeedError]]:
    """Makes a call that must fail; returns its status code and infeed error."""

    def read(call: Callable[[], Any]) -> tuple[str, InfeedError]:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        code, error = error_of(caught.value)
        return code, error

    return read


# TLS.


def test_mutual_tls_with_grpcs_own_client(start: Any, pki: Any, channels: Any) -> None:
    files = TLSFiles(str(pki.server), str(pki.server_key), str(pki.ca))
    live = start(credentials=files.credentials())
    assert get(channels(live, cert="trainer"), "held") == "held"
    with pytest.raises(grpc.RpcError) as caught:
        get(channels(live), "held")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_trainer_without_tls_fails_at_once(start: Any, files: TLSFiles) -> None:
    live = start(credentials=files.credentials())
    with contextlib.closing(GrpcTransport(live.address)) as transport:
        message = f"^{live.address} requires TLS; set tls=True or .* in a command --tls or"
        with pytest.raises(AuthenticationError, match=message) as caught:
            transport.get_pipeline("held", timeout=60)
    assert caught.value.__suppress_context__


def test_renewed_key_and_authority_are_used_for_new_connections(
    start: Any, pki: Any, tmp_path: Path, channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    for file, content in ((cert, pki.server), (key, pki.server_key), (ca, pki.ca)):
        file.write_bytes(content.read_bytes())
    live = start(credentials=TLSFiles(str(cert), str(key), str(ca)).credentials())
    assert get(channels(live, cert="trainer"), "held") == "held"
    trustme.CA().cert_pem.write_to_path(str(ca))  # another authority: the trainer's is unknown
    with pytest.raises(grpc.RpcError) as caught:
        get(channels(live, cert="trainer"), "held")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    ca.write_bytes(pki.ca.read_bytes())
    assert get(channels(live, cert="trainer"), "held") == "held"
    cert.write_bytes(pki.trainer.read_bytes())  # without its key yet: the pair before stays
    assert get(channels(live, cert="trainer"), "held") == "held"
    key.write_bytes(pki.trainer_key.read_bytes())
    assert presented_to(live, pki) == ssl.PEM_cert_to_DER_cert(pki.trainer.read_text())


def presented_to(live: Any, pki: Any) -> bytes | None:
    """Returns the certificate that a server presents to a trainer with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(pki.trainer, pki.trainer_key)
    address = ("127.0.0.1", live.server.port)
    with socket.create_connection(address, 60) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True)


# Tokens.


def test_valid_tokens_of_both_clients(
    secure_server: Any, transports: Any, channels: Any, open_call: Any
) -> None:
    broken = {"lost": "no file matches 'a.npz'"}  # without the folders of the server
    for token, visible, lost in ((ALL, ["held", "other"], broken), (HELD, ["held"], {})):
        transport = transports(secure_server, token)
        assert transport.broken_pipelines() == lost
        assert [spec.name for spec in transport.list_pipelines()] == visible
        assert transport.get_pipeline("held").name == "held"
        channel = channels(secure_server, token)
        listed: Any = channel.unary_unary(f"{PREFIX}ListPipelines")
        page = service.ListPipelinesResponse.FromString(listed(b"", timeout=100))
        assert [pipeline.name for pipeline in page.pipelines] == visible
        call = open_call(channel).open()
        for number in range(50):
            call.request(4 * number, request_id=number)
        responses, rpc_error = call.half_close().rest()
        assert rpc_error is None
        assert [response.header.request_id for response in responses[1::2]] == list(range(50))


def test_pipeline_without_access_is_refused(
    secure_server: Any,
    transports: Any,
    channels: Any,
    open_call: Any,
    call_error: Any,
    error_of: Any,
    caplog: Any,
) -> None:
    """The error does not reveal whether the pipeline exists."""
    caplog.set_level(logging.INFO)
    channel = channels(secure_server, HELD)
    transport = transports(secure_server, HELD)
    messages = set()
    for name in ("other", "none", "", "x" * 30_000):
        code, error = call_error(lambda name=name: get(channel, name))
        assert (code, type(error)) == ("PERMISSION_DENIED", PermissionDeniedError)
        assert "known" not in error.metadata
        responses, rpc_error = open_call(channel).open(name).request(0).rest()
        assert responses == []
        assert error_of(rpc_error)[0] == "PERMISSION_DENIED"
        with pytest.raises(PermissionDeniedError):
            transport.get_pipeline(name)
        run = service.Run(pipeline=name)
        requests = {
            "DescribeSlots": service.DescribeSlotsRequest(run=run, count=1),
            "FindSample": service.FindSampleRequest(run=run, sample="0", epochs=1),
            "RegisterDataset": service.RegisterDatasetRequest(pipeline=name),
        }
        for method, request in requests.items():
            with pytest.raises(PermissionDeniedError):
                transport.call(method, request)
        if len(name) < 99:
            assert error_of(rpc_error)[1].message == error.message
            messages.add(error.message.replace(repr(name), "NAME"))
    assert messages == {"the token of 'held' has no access to pipeline NAME"}
    lines = [line for line in caplog.messages if "was refused: the token of 'held'" in line]
    assert len(lines) == 24
    assert max(map(len, lines)) < 1000


def test_only_health_needs_no_token(secure_server: Any, channels: Any, call_error: Any) -> None:
    anonymous = channels(secure_server)
    health = health_pb2_grpc.HealthStub(anonymous)
    response = health.Check(health_pb2.HealthCheckRequest(), timeout=100)
    assert response.status == health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=100)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()

    def reflect(channel: grpc.Channel) -> list[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (names,) = stub.ServerReflectionInfo(iter([request]), timeout=100)
        return [service.name for service in names.list_services_response.service]

    assert call_error(lambda: reflect(anonymous))[0] == "UNAUTHENTICATED"
    assert "infeed.v1.FeedService" in reflect(channels(secure_server, HELD))
    for path in ("/grpc.health.v1.HealthX/Check", "/x/grpc.health.v1.Health/Check", "//", "/"):
        call: Any = anonymous.unary_unary(path)
        assert call_error(lambda call=call: call(b"", timeout=100))[0] == "UNAUTHENTICATED"
    unknown = anonymous.unary_unary("/grpc.health.v1.Health/../x")
    assert call_error(lambda: unknown(b"", timeout=100))[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize("has_tokens", [False, True])
def test_health_without_a_token_is_of_the_server_alone(
    start: Any, tokens: Any, has_tokens: bool
) -> None:
    live = start(authenticator=TokenAuthenticator(tokens()) if has_tokens else None)
    live.server.set_serving(False)
    live.server.set_serving(False, "held")
    codes = []
    with grpc.insecure_channel(live.address) as channel:
        for name in ("", "held"):
            request = health_pb2.HealthCheckRequest(service=name)
            try:
                health_pb2_grpc.HealthStub(channel).Check(request, timeout=60)
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)
    assert codes == ["OK", "NOT_FOUND" if has_tokens else "OK"]


# Changes while a stream is open.


@pytest.mark.parametrize("change", ["removed", "other pipelines"])
def test_revoked_token_ends_an_open_stream(
    start: Any, tokens: Any, channels: Any, open_call: Any, error_of: Any, files: Any, change: str
) -> None:
    live = start(files.credentials(), authenticator=TokenAuthenticator(tokens()))
    stream, other = (open_call(channels(live, token)).open() for token in (HELD, ALL))
    for call in (stream, other):
        kinds = [call.request(0).next().WhichOneof("event") for _ in range(2)]
        assert kinds == ["opened", "header"]
    tokens(**({"held": ["other"]} if change == "other pipelines" else {}), all=["*"])
    code = "PERMISSION_DENIED" if change == "other pipelines" else "UNAUTHENTICATED"
    assert error_of(stream.request(4).rest()[1])[0] == code
    answers, error = other.request(4).half_close().rest()
    assert (len(answers), error) == (5, None)
