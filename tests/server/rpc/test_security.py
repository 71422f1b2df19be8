"""TLS, tokens and limits of hosts at the server's calls, for infeed's client and gRPC's own. What a
certificate, a handshake and a token are refused for is tested beside their modules."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import infeed
from infeed.credentials import Credentials
from infeed.errors import (
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ServerUnavailableError,
)
from infeed.tls import TLS
from infeed.transport import GrpcTransport
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2
from infeed_server.config import watched
from infeed_server.http2 import secure
from infeed_server.rpc import server as rpc_server
from infeed_server.runtime.certificate import TLSFiles
from infeed_server.service.tokens import TokenAccess, fingerprint

PREFIX = "/infeed.v1.FeedService/"
ALL, HELD = "infeed_all", "infeed_held"
"""Tokens: with the right to everything, and to `held`."""


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes the file of tokens, which is read whenever it is asked for, and gives its path."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    file = tmp_path / "tokens.yaml"

    def write(**pipelines: list[str]) -> str:
        texts = {"all": ALL, "held": HELD}
        grants: list[dict[str, Any]] = [
            {"name": name, "sha256": fingerprint(texts[name]), "pipelines": rights}
            for name, rights in pipelines.items()
        ]
        new = tmp_path / "new"
        new.write_text(yaml.safe_dump({"tokens": grants}))
        new.rename(file)
        return str(file)

    write(all=["*"], held=["h*d"])
    return write


@pytest.fixture
def files(pki: Any) -> TLSFiles:
    return TLSFiles(str(pki.server), str(pki.server_key))


@pytest.fixture
def guarded(start: Any, tokens: Any, files: TLSFiles) -> Any:
    """A server with TLS and tokens."""
    return start(tls=files.watched(), access=TokenAccess(tokens(all=["*"], held=["h*d"])))


@pytest.fixture
def feeds(pki: Any) -> Iterator[Callable[..., GrpcTransport]]:
    """infeed's client: `feeds(live, token, tls)`."""
    made: list[GrpcTransport] = []

    def make(live: Any, token: Any = None, tls: Any = None) -> GrpcTransport:
        made.append(GrpcTransport(live.address, Credentials(token, tls or TLS(ca=pki.ca))))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def channels(pki: Any) -> Iterator[Callable[..., grpc.Channel]]:
    """gRPC's client: `channels(live, token, cert)`, where `cert` names one of the pki."""
    with contextlib.ExitStack() as stack:

        def make(live: Any, token: str | None = None, cert: str | None = None) -> grpc.Channel:
            shown = (
                [getattr(pki, f"{cert}{end}").read_bytes() for end in ("_key", "")] if cert else []
            )
            credentials = grpc.ssl_channel_credentials(pki.ca.read_bytes(), *shown)
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
    answer = service.GetPipelineResponse.FromString(method(raw, timeout=20, **options))
    return answer.pipeline.name


@pytest.fixture
def refused(refusal: Any) -> Callable[[Callable[[], Any]], tuple[str, InfeedError]]:
    """The status of a call that must fail, and the infeed error in it."""

    def read(call: Callable[[], Any]) -> tuple[str, InfeedError]:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        code, told = refusal(caught.value)
        return code, told

    return read


# TLS.


def test_mutual_tls_of_grpcs_own_client(start: Any, pki: Any, channels: Any) -> None:
    live = start(tls=TLSFiles(str(pki.server), str(pki.server_key), str(pki.ca)).watched())
    assert get(channels(live, cert="trainer"), "held") == "held"
    with pytest.raises(grpc.RpcError) as caught:
        get(channels(live), "held")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_plaintext_to_a_port_of_tls(
    guarded: Any, refused: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    words = "this port takes TLS only, and nothing in the clear"
    with grpc.insecure_channel(guarded.address) as channel:
        # Whoever shows a good token has shown it to everybody on the way.
        metadata = (("authorization", f"Bearer {ALL}"),)
        for options in ({}, {"metadata": metadata}):
            code, told = refused(lambda options=options: get(channel, "held", **options))
            assert (code, type(told)) == ("UNAUTHENTICATED", AuthenticationError)
            assert words in told.message
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError, match=words):
            stub.Check(health_pb2.HealthCheckRequest(), timeout=100)
    for token in (None, ALL):
        transport = GrpcTransport(guarded.address, Credentials(token, tls=False))
        with pytest.raises(AuthenticationError, match=words):
            transport.get_pipeline("held")
        with pytest.raises(AuthenticationError, match=words):
            transport.list_pipelines()
        transport.close()
    assert caplog.text.count(f"was refused: {words}") >= 6
    assert guarded.held.sessions == []


# Tokens.


def test_tokens_of_both_clients(guarded: Any, feeds: Any, channels: Any, peers: Any) -> None:
    for token, seen in ((ALL, ["held", "other"]), (HELD, ["held"])):
        transport = feeds(guarded, token)
        assert [spec.name for spec in transport.list_pipelines()] == seen
        assert transport.get_pipeline("held").name == "held"
        channel = channels(guarded, token)
        listed: Any = channel.unary_unary(f"{PREFIX}ListPipelines")
        page = service.ListPipelinesResponse.FromString(listed(b"", timeout=100))
        assert [pipeline.name for pipeline in page.pipelines] == seen
        call = peers(channel).open()
        for number in range(50):
            call.ask(4 * number, request_id=number)
        answers, error = call.half_close().rest()
        assert error is None
        assert [answer.header.request_id for answer in answers[1::2]] == list(range(50))


def test_an_unknown_token_is_refused_in_every_call(
    guarded: Any,
    feeds: Any,
    channels: Any,
    peers: Any,
    refused: Any,
    refusal: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token, words = "infeed_wrong", "none that this server knows"
    caplog.set_level(logging.DEBUG)
    assert logging.getLogger("hpack.hpack").getEffectiveLevel() > logging.DEBUG
    transport = feeds(guarded, token)
    for ask in (transport.list_pipelines, lambda: transport.get_pipeline("held")):
        with pytest.raises(AuthenticationError, match=words) as caught:
            ask()
        assert "other" not in str(caught.value)
    channel = channels(guarded, token)
    for name in ("held", "none", ""):
        code, told = refused(lambda name=name: get(channel, name))
        assert (code, told.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        assert words in told.message
        assert "known" not in told.metadata
    for method in ("ListPipelines", "NoMethod", "StreamBatches"):
        call: Any = channel.unary_unary(f"{PREFIX}{method}")
        assert refused(lambda call=call: call(b"", timeout=100))[0] == "UNAUTHENTICATED"
    answers, error = peers(channel).open().ask(0).rest()
    assert answers == []
    assert refusal(error)[0] == "UNAUTHENTICATED"
    assert guarded.held.sessions == []
    refusals = [line for line in caplog.messages if "was refused: " in line]
    assert len(refusals) == 9
    assert token not in caplog.text


def test_no_right_to_a_pipeline(
    guarded: Any, feeds: Any, channels: Any, peers: Any, refused: Any, refusal: Any, caplog: Any
) -> None:
    """The same is said of pipelines that there are and that there are not."""
    caplog.set_level(logging.INFO)
    channel = channels(guarded, HELD)
    transport = feeds(guarded, HELD)
    said = set()
    for name in ("other", "none", "", "x" * 30_000):
        code, told = refused(lambda name=name: get(channel, name))
        assert (code, type(told)) == ("PERMISSION_DENIED", PermissionDeniedError)
        assert "known" not in told.metadata
        answers, error = peers(channel).open(name).ask(0).rest()
        assert answers == []
        assert refusal(error)[0] == "PERMISSION_DENIED"
        with pytest.raises(PermissionDeniedError):
            transport.get_pipeline(name)
        if len(name) < 99:
            assert refusal(error)[1].message == told.message
            said.add(told.message.replace(repr(name), "it"))
    assert said == {"the token of 'held' has no right to a pipeline it"}
    lines = [line for line in caplog.messages if "was refused: the token of 'held'" in line]
    assert len(lines) == 12
    assert max(map(len, lines)) < 1000


def test_a_pipeline_that_is_not_there_lists_what_may_be_seen(
    start: Any, tokens: Any, files: TLSFiles, channels: Any, refused: Any
) -> None:
    access = TokenAccess(tokens(held=["held", "none"], all=["*"]))
    live = start(tls=files.watched(), access=access)
    for token, known in ((HELD, "held"), (ALL, "held, other")):
        code, told = refused(lambda token=token: get(channels(live, token), "none"))
        assert (code, type(told)) == ("NOT_FOUND", PipelineNotFoundError)
        assert told.metadata["known"] == known
        assert told.message.endswith(f"this server has: {known}")


def test_a_token_without_a_right_to_anything(
    start: Any, tokens: Any, files: TLSFiles, feeds: Any
) -> None:
    live = start(tls=files.watched(), access=TokenAccess(tokens(held=["nothing-*"])))
    assert feeds(live, HELD).list_pipelines() == []
    with pytest.raises(PipelineNotFoundError, match=r"this server has: $"):
        feeds(live, HELD).get_pipeline("nothing-here")


def test_health_wants_no_token_and_the_rest_does(guarded: Any, channels: Any, refused: Any) -> None:
    stranger = channels(guarded)
    health = health_pb2_grpc.HealthStub(stranger)
    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=100)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=100)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()

    def reflect(channel: grpc.Channel) -> list[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        (names,) = stub.ServerReflectionInfo(iter([asked]), timeout=100)
        return [it.name for it in names.list_services_response.service]

    assert refused(lambda: reflect(stranger))[0] == "UNAUTHENTICATED"
    assert "infeed.v1.FeedService" in reflect(channels(guarded, HELD))
    for path in ("/grpc.health.v1.HealthX/Check", "/x/grpc.health.v1.Health/Check", "//", "/"):
        call: Any = stranger.unary_unary(path)
        assert refused(lambda call=call: call(b"", timeout=100))[0] == "UNAUTHENTICATED"
    with pytest.raises(grpc.RpcError) as caught:
        stranger.unary_unary("/grpc.health.v1.Health/../x")(b"", timeout=100)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_tokens_in_other_headers_are_not_read(guarded: Any, channels: Any, refused: Any) -> None:
    channel = channels(guarded)
    bearer = f"Bearer {HELD}"
    for headers in (
        [("authorization", "Bearer infeed_wrong"), ("x-authorization", bearer)],
        [("proxy-authorization", bearer)],
        [("token", HELD)],
    ):
        code, _ = refused(lambda headers=headers: get(channel, "held", metadata=headers))
        assert code == "UNAUTHENTICATED"


def test_tokens_in_the_clear_where_the_network_is_trusted(start: Any, tokens: Any) -> None:
    live = start(access=TokenAccess(tokens(held=["held"])))
    transport = GrpcTransport(live.address, Credentials(HELD))
    assert [spec.name for spec in transport.list_pipelines()] == ["held"]
    transport.close()


@pytest.mark.parametrize("refuses_first", [False, True])
def test_a_feed_leaves_out_a_server_that_refuses_it(
    start: Any, guarded: Any, caplog: pytest.LogCaptureFixture, refuses_first: bool
) -> None:
    members = [start().address, guarded.address]
    target = ",".join(reversed(members) if refuses_first else members)
    with infeed.connect(target, "held") as feed:
        for number in range(50):
            assert feed.next(100).start == 4 * number
        assert feed.stats().servers == (members[0],)
    assert f"{guarded.address} is left out: this port takes TLS only" in caplog.text


def test_a_feed_that_every_server_refuses_ends_at_once(guarded: Any) -> None:
    target = f"{guarded.address},{guarded.address.replace('127.0.0.1', 'localhost')}"
    with pytest.raises(AuthenticationError, match="this port takes TLS only"):
        infeed.connect(target, "held", timeout=100_000.0)


# What changes while a stream is open.


class HandFed:
    """A stream of infeed's client, which asks when it is told to."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests = iter(self._requests.get, None)
        self._call = transport.open_stream(transport.servers()[0], requests, lambda: None)
        event = stream_pb2.StreamOpen(pipeline="held")
        self._requests.put(stream_pb2.StreamBatchesRequest(open=event))

    def ask(self, start: int) -> None:
        event = stream_pb2.BatchRequest(start=start, count=4)
        self._requests.put(stream_pb2.StreamBatchesRequest(batch=event))

    def answer(self) -> str:
        """The kind of the next answer: "opened" or "header"."""
        while True:
            size = self._call.next()
            assert size is not None
            message = bytearray(size)
            self._call.read_into(memoryview(message))
            kind = stream_pb2.StreamBatchesResponse.FromString(bytes(message)).WhichOneof("event")
            if kind not in ("heartbeat", "chunk"):
                return str(kind)

    def close(self) -> None:
        self._requests.put(None)
        self._call.close()


@pytest.mark.parametrize("how", ["taken out", "other rights"])
def test_a_token_that_is_worth_nothing_any_more_ends_an_open_stream(
    start: Any, tokens: Any, files: TLSFiles, feeds: Any, eventually: Any, how: str
) -> None:
    live = start(tls=files.watched(), access=TokenAccess(tokens(held=["held"], all=["*"])))
    stream, other = HandFed(feeds(live, HELD)), HandFed(feeds(live, ALL))
    for each in (stream, other):
        each.ask(0)
        assert [each.answer(), each.answer()] == ["opened", "header"]
    tokens(**({"held": ["other"]} if how == "other rights" else {}), all=["*"])
    stream.ask(4)
    kind = PermissionDeniedError if how == "other rights" else AuthenticationError
    with pytest.raises(kind):
        stream.answer()
    other.ask(4)
    assert other.answer() == "header"
    stream.close()
    other.close()
    eventually(lambda: live.gauge("streams") == 0, "both are closed")


# Limits.


def test_streams_of_one_host(
    start: Any,
    tokens: Any,
    files: TLSFiles,
    feeds: Any,
    channels: Any,
    peers: Any,
    eventually: Any,
) -> None:
    access = TokenAccess(tokens(all=["*"]))
    live = start(tls=files.watched(), access=access, peer_streams=3)
    channel = channels(live, ALL)
    calls = [peers(channel).open() for _ in range(3)]
    for call in calls:
        assert call.next().HasField("opened")
    _, error = peers(channel).open().rest()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "127.0.0.1 has 3 streams open already"
    fourth = HandFed(feeds(live, ALL))
    with pytest.raises(ServerUnavailableError, match="has 3 streams"):
        fourth.answer()  # which is worth another try
    fourth.close()
    assert get(channel, "held") == "held"  # other calls have their own
    assert calls[0].half_close().rest() == ([], None)
    # A place is free a moment after the answer.
    eventually(lambda: len(live.server._feeds) < 3, "the place is free")
    assert peers(channel).open().next().HasField("opened")


def test_refused_streams_hold_no_place(
    guarded: Any, channels: Any, peers: Any, eventually: Any
) -> None:
    channel = channels(guarded)
    for _ in range(5):
        _, error = peers(channel).open().rest()
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    eventually(lambda: not len(guarded.server._feeds), "their places are free")


def test_who_watches_the_health_takes_no_place_of_others(
    guarded: Any, channels: Any, eventually: Any
) -> None:
    channel = channels(guarded, ALL)
    stub = health_pb2_grpc.HealthStub(channel)
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(8)]
    for watch in watches:
        next(watch)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest())
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert get(channel, "held") == "held"
    for watch in watches:
        watch.cancel()
    eventually(lambda: not len(guarded.server._watches), "the places are free again")
    stub.Check(health_pb2.HealthCheckRequest())


def test_connections_of_one_host(
    start: Any, files: TLSFiles, feeds: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(rpc_server, "MAX_PEER_CONNECTIONS", 3)
    live = start(tls=files.watched())
    place = ("127.0.0.1", live.server.port)
    silent = [socket.create_connection(place, 10) for _ in range(3)]
    with socket.create_connection(place, 10) as fourth:
        assert fourth.recv(1) == b""
    with pytest.raises(ServerUnavailableError):
        feeds(live).get_pipeline("held", timeout=0.3)
    for each in silent:
        each.close()
    eventually(lambda: not len(live.server._places), "their places are free")
    assert feeds(live).get_pipeline("held")


def test_a_certificate_that_cannot_be_had_costs_no_place(
    start: Any, feeds: Any, files: TLSFiles, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __init__(self) -> None:
            self.fails = True
            self.good = files.context()

        @property
        def value(self) -> Any:
            if self.fails:
                raise RuntimeError("no context")
            return self.good

    tls = Failing()
    live = start(tls=tls)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", live.server.port), 10) as peer:
            assert peer.recv(1) == b""
    assert len(live.server._places) == 0
    tls.fails = False
    assert feeds(live).get_pipeline("held")


def test_a_stop_waits_for_no_handshake(
    start: Any, files: TLSFiles, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(secure, "_HANDSHAKE_SECONDS", 1000.0)
    live = start(tls=files.watched())
    place = ("127.0.0.1", live.server.port)
    beginnings = (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n")
    peers = [socket.create_connection(place, 60) for _ in beginnings]
    for peer, beginning in zip(peers, beginnings, strict=True):
        peer.sendall(beginning)
    eventually(lambda: len(live.server._connections) == len(peers), "all are taken")
    live.server.stop(20)
    assert not live.server._connections
    for peer in peers:
        with peer, contextlib.suppress(ConnectionError):
            while peer.recv(1 << 12):
                pass
