"""Feeds over grpcio at one end or both: batches, errors and interruptions as on the own stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.waiting import wait_until
from tests.reference.grpcio_server import GrpcioServer
from tests.reference.grpcio_transport import GrpcioTransport
from tests.reference.serve import use_grpcio

import infeed
from infeed.rpc.channel import GrpcTransport
from infeed.rpc.credentials import Credentials
from infeed_server import Server, ServerOptions
from infeed_server.pipeline.load import parse
from infeed_server.rpc.server import RpcServer
from infeed_server.runtime.certificate import TLSFiles

SAMPLES, SIZE = 40, 300_000
TOKEN = "infeed_of-the-reference"


@pytest.fixture(params=["own-grpcio", "grpcio-own", "grpcio-grpcio"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[GrpcTransport]:
    """Makes servers of the first kind; returns the client transport of the second."""
    server, _, client = request.param.partition("-")
    if server == "grpcio":
        use_grpcio(monkeypatch.setattr)
    return GrpcTransport if client == "own" else GrpcioTransport


def fail(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    with tf.control_dependencies([tf.debugging.Assert(sample["x"] > 0, ["not positive"])]):
        return {"x": tf.identity(sample["x"])}


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Starts a server of pipeline `a` with samples of 300 kB, so that a batch has many messages."""
    running: list[Server] = []

    def start_server(**options: Any) -> Server:
        rng = np.random.default_rng(7)
        arrays = {"x": rng.integers(0, 255, (SAMPLES, SIZE)).astype(np.uint8)}
        definition = parse(
            {"source": {"arrays": arrays}, "shuffle": {"seed": 3}, "batch": {"size": 10}}
        )
        bad = {"arrays": {"x": np.zeros(10, np.int64)}}
        fails = parse(
            {"source": bad, "transforms": [{"map": {"function": fail}}], "batch": {"size": 5}}
        )
        settings = ServerOptions(**({"listen": "127.0.0.1:0", "http": None} | options))
        server = Server({"a": definition, "bad": fails}, settings)
        running.append(server)
        # Else a change of the server's construction would make all pairs the same.
        own = request.node.callspec.params["ends"].startswith("own")
        assert isinstance(server._rpc, RpcServer if own else GrpcioServer)
        server.start()
        return server

    yield start_server
    for server in running:
        server.stop(0.2)


def connect(
    ends: type[GrpcTransport], server: Server, name: str = "a", **options: Any
) -> infeed.Feed:
    credentials = Credentials(options.pop("token", None), options.pop("tls", None))
    transport = ends(str(server.address), credentials)
    return infeed.connect("unused", name, transport=transport, **options)


def test_batches_equal_those_of_the_own_stack(
    ends: type[GrpcTransport], start: Callable[..., Server]
) -> None:
    server = start()
    with connect(GrpcTransport, server, epochs=2, batch_size=7, remainder="pad") as feed:
        expected = [(batch.sample_ids, batch["x"]) for batch in feed]
    with connect(ends, server, epochs=2, batch_size=7, remainder="pad") as feed:
        actual = [(batch.sample_ids, batch["x"]) for batch in feed]
    assert len(actual) == len(expected) == 12
    for (ids, x), (expected_ids, expected_x) in zip(actual, expected, strict=True):
        assert np.array_equal(ids, expected_ids)
        assert np.array_equal(x, expected_x)


def test_tls_and_token_are_required(
    ends: type[GrpcTransport],
    start: Callable[..., Server],
    pki: SimpleNamespace,
    tmp_path: Path,
) -> None:
    import hashlib

    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"tokens: [{{name: team, sha256: {digest}, pipelines: ['a']}}]\n")
    files = TLSFiles(str(pki.server), str(pki.server_key), str(pki.ca))
    server = start(tls=files, tokens=str(tokens))
    tls = infeed.TLS(ca=pki.ca, cert=pki.trainer, key=pki.trainer_key)
    with connect(ends, server, tls=tls, token=TOKEN, epochs=1) as feed:
        assert sum(len(batch.sample_ids) for batch in feed) == SAMPLES
    with pytest.raises(infeed.AuthenticationError):
        connect(ends, server, tls=tls, token="infeed_another")
    with pytest.raises(infeed.InfeedError):
        connect(ends, server, tls=infeed.TLS(ca=pki.untrusted_ca), token=TOKEN, timeout=2)


def test_errors_keep_their_type_and_text(
    ends: type[GrpcTransport], start: Callable[..., Server]
) -> None:
    server = start()
    with pytest.raises(
        infeed.PipelineNotFoundError, match="no pipeline 'b'; this server has: a, bad"
    ):
        connect(ends, server, "b")
    with connect(ends, server, "bad") as feed, pytest.raises(infeed.UserCodeError) as caught:
        next(feed)
    with connect(GrpcTransport, server, "bad") as feed, pytest.raises(infeed.UserCodeError) as own:
        next(feed)
    assert str(caught.value) == str(own.value)
    assert caught.value.metadata == own.value.metadata


def test_stopped_server_ends_the_feed_and_its_successor_continues_it(
    ends: type[GrpcTransport], start: Callable[..., Server], new_address: Callable[[], str]
) -> None:
    address = new_address()
    server = start(listen=address)
    with connect(ends, server, epochs=1, prefetch_bytes=1) as feed:
        ids = [*next(feed).sample_ids]
        server.stop(0.2)
        start(listen=address)
        for batch in feed:
            ids += [*batch.sample_ids]
    assert sorted(ids) == list(range(SAMPLES))


def test_closed_feed_frees_its_stream(
    ends: type[GrpcTransport], start: Callable[..., Server]
) -> None:
    server = start()
    feed = connect(ends, server, prefetch_bytes=1)
    next(feed)
    assert open_streams(server) == 1
    feed.close()
    wait_until(lambda: open_streams(server) == 0, "the stream is freed")


def open_streams(server: Server) -> float | None:
    return server.metrics.registry.get_sample_value("infeed_streams", {"pipeline": "a"})
