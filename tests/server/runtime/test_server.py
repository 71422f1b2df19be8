"""Tests of `runtime/server.py`."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from PIL import Image
from tests.harness.http_get import fetch
from tests.harness.waiting import wait_until

import infeed
from infeed_server import Pipeline
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.pipeline.load import load, parse
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server

HOST = "127.43.0.5"
"""A loopback address of these tests alone, so that a free port stays free."""

LOCAL = f"{HOST}:0"


def arrays(rows: int = 8, **options: Any) -> Pipeline:
    source = {"arrays": {"x": np.arange(rows)}}
    return parse({"source": source, "batch": {"size": 4}, **options})


def dataset(make: Callable[[], Any]) -> Pipeline:
    return parse({"source": {"dataset": make}, "batch": {"size": 4}})


def read_samples(server: Server, name: str = "n") -> list[int]:
    with infeed.connect(str(server.address), name, epochs=1, timeout=60) as feed:
        return [int(x) for batch in feed for x in batch["x"]]


def get(address: str | None, path: str) -> tuple[int, str]:
    answer = fetch(str(address), path)
    return answer.status, answer.body


def health_status(server: Server, name: str = "") -> str:
    """Returns the status of gRPC's health service."""
    with grpc.insecure_channel(str(server.address)) as channel:
        response = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=name), timeout=60
        )
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def is_free(address: object) -> bool:
    host, _, port = str(address).rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
            probe.listen()
        except OSError:
            return False
        return True


def engine_threads() -> set[str]:
    """Returns the threads of engines and control planes; the threads of gRPC end later."""
    return {
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("infeed-") and not thread.name.startswith("infeed-rpc")
    }


@pytest.fixture(autouse=True)
def no_threads_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # the folder of the quarantine log
    before = engine_threads()
    yield
    deadline = time.monotonic() + 60
    while remaining := engine_threads() - before:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.01)


def test_context_manager_serves_and_stops(new_address: Callable[[], str]) -> None:
    options = ServerOptions(new_address(), new_address())
    with Server({"n": arrays()}, options) as server:
        assert server.address.port > 0
        assert read_samples(server) == list(range(8))
        assert health_status(server) == "SERVING"
        (line,) = server.specs()
        assert line.startswith("n: x: int64[]; batch 4; 8 samples; deterministic order")
    assert is_free(server.address)
    assert is_free(server.http_address)
    assert not server.health.overall.ready
    with pytest.raises(infeed.ServerUnavailableError):
        infeed.connect(str(server.address), "n", timeout=0.2)


def test_control_plane_answers_while_sources_are_opened(new_address: Callable[[], str]) -> None:
    http = new_address()
    responses = []

    def slow() -> tf.data.Dataset:
        if not responses:
            responses.extend([get(http, "/livez"), get(http, "/readyz")])
        return tf.data.Dataset.range(8).map(lambda x: {"x": x})

    definitions = {"first": arrays(), "second": dataset(slow)}
    with Server(definitions, ServerOptions(LOCAL, http)) as server:
        assert server.http_address == http
        assert read_samples(server, "second") == list(range(8))
    (live, _), (ready, text) = responses
    assert (live, ready) == (200, 503)
    assert json.loads(text)["pipelines"] == {
        "first": {"ready": False, "reason": "making its first batch"},
        "second": {"ready": False, "reason": "opening its source"},
    }


@pytest.mark.parametrize("policy", ["all", "any"])
def test_pipeline_with_a_bad_sample_at_first_is_not_ready(policy: Any) -> None:
    words = np.array([b"0", b"one", *(b"%d" % i for i in range(2, 8))])
    definition = parse(
        {
            "source": {"arrays": {"x": words}},
            "transforms": [{"string_to_number": {"field": "x", "dtype": "int64"}}],
            "batch": {"size": 2},
        }
    )
    options = ServerOptions(LOCAL, LOCAL, readiness=policy)
    with Server({"bad": definition, "good": arrays()}, options) as server:
        status, text = get(server.http_address, "/readyz")
        assert (status, health_status(server)) == (
            (200, "SERVING") if policy == "any" else (503, "NOT_SERVING")
        )
        content = json.loads(text)
        assert content["reason"].startswith("1 of 2 not ready: bad: its first batch fails: sample")
        assert not content["pipelines"]["bad"]["ready"]
        assert "on_error: substitute or mask" in content["pipelines"]["bad"]["reason"]
        assert health_status(server, "bad") == "NOT_SERVING"
        target = str(server.address)
        with infeed.connect(target, "bad") as feed:
            start = feed.state()
        with infeed.connect(target, "bad", state={**start, "position": 2}) as feed:
            assert feed.next(30)["x"].tolist() == [2, 3]


def test_server_is_not_ready_while_its_files_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed_server.storage.faults._sleep", lambda _: None)
    monkeypatch.setattr("infeed_server.runtime.warm_up._WARM_UP_INTERVAL_SECONDS", 0.01)
    folder, away = tmp_path / "data", tmp_path / "away"
    folder.mkdir()
    for name in "ab":
        Image.new("RGB", (2, 2)).save(folder / f"{name}.png")
    definition = parse({"source": {"images": str(folder)}, "batch": {"size": 1}})
    with Server({"n": definition}, ServerOptions(LOCAL, None)) as server:
        assert server.health.overall.ready
        folder.rename(away)
        with (
            infeed.connect(str(server.address), "n", epochs=1) as feed,
            pytest.raises(infeed.SourceError, match=r"a\.png|b\.png"),
        ):
            list(feed)
        wait_until(lambda: not server.health.overall.ready, "the server is not ready")
        assert "its first batch fails" in server.health.overall.reason
        away.rename(folder)
        wait_until(lambda: server.health.overall.ready, "the server is ready")


def test_an_engine_that_raises_what_it_likes_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def warm_up(engine: IndexedEngine) -> None:
        raise KeyError("weights")

    monkeypatch.setattr(IndexedEngine, "warm_up", warm_up)
    with Server({"n": arrays()}, ServerOptions(LOCAL, None)) as server:
        reason = server.health.parts["n"].reason
        assert reason == "its first batch fails: KeyError: 'weights'"


def test_other_pipelines_are_served_beside_a_broken_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(8))
    (tmp_path / "p.yaml").write_text(
        "pipelines:\n"
        "  mistaken: {source: {arrays: a.npz}, batch: {sise: 4}}\n"
        "  n: {source: {arrays: a.npz}, batch: {size: 4}}\n"
        "  away: {source: {arrays: away.npz}, batch: {size: 4}}\n"
    )
    with pytest.raises(infeed.ConfigError, match="sise"):
        load(str(tmp_path / "p.yaml"))
    pipelines = load(str(tmp_path / "p.yaml"), skip_broken=True)
    assert [*pipelines] == ["n", "away"]
    with pytest.raises(infeed.SourceError, match=r"away\.npz"):
        Server(pipelines, ServerOptions(LOCAL, None))
    with Server(pipelines, ServerOptions(LOCAL, None, skip_broken=True)) as server:
        assert server.health.overall.ready
        assert not server.health.parts["away"].ready
        assert server.instrument.observer.to_json({})["broken"].keys() == {"mistaken", "away"}
        for name, reason in {"mistaken": "sise", "away": r"away\.npz"}.items():
            with pytest.raises(infeed.PipelineNotFoundError, match=f"is broken: .*{reason}.*: n$"):
                infeed.connect(str(server.address), name)
        assert read_samples(server) == list(range(8))
    away = {"away": pipelines["away"]}
    with pytest.raises(infeed.SourceError, match=r"away\.npz"):
        Server(away, ServerOptions(LOCAL, None, skip_broken=True))


def test_error_while_opening_frees_everything(new_address: Callable[[], str]) -> None:
    listen, http = new_address(), new_address()

    def broken() -> tf.data.Dataset:
        raise KeyError("no such data")

    definitions = {"first": arrays(), "second": dataset(broken)}
    before = engine_threads()
    with pytest.raises(infeed.UserCodeError, match="no such data"):
        Server(definitions, ServerOptions(listen, http))
    assert engine_threads() <= before  # an iterator of an earlier test may end meanwhile
    assert is_free(listen)
    assert is_free(http)
    with Server({"first": arrays()}, ServerOptions(listen, http)) as server:
        assert read_samples(server, "first") == list(range(8))


@pytest.mark.parametrize("which", ["listen", "http"])
def test_taken_port_is_refused_before_a_source_is_opened(
    which: str, new_address: Callable[[], str]
) -> None:
    opened = []

    def record_open() -> tf.data.Dataset:
        opened.append(1)
        return tf.data.Dataset.range(8)

    other = new_address()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        options = ServerOptions(
            listen=taken if which == "listen" else other, http=taken if which == "http" else other
        )
        with pytest.raises(
            infeed.ConfigError, match=f"cannot listen on {taken}: address already in use"
        ):
            Server({"n": dataset(record_open)}, options)
    assert not opened
    assert is_free(other)


def test_unix_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    with Server({"n": arrays()}, ServerOptions(address, None)) as server:
        assert str(server.address) == address
        assert read_samples(server) == list(range(8))
        assert health_status(server) == "SERVING"
        with pytest.raises(
            infeed.ConfigError, match=f"cannot listen on {address}: address already in use"
        ):
            Server({"n": arrays()}, ServerOptions(address, None))
        assert read_samples(server) == list(range(8))
    with pytest.raises(infeed.ServerUnavailableError):
        infeed.connect(address, "n", timeout=0.2)


def test_readiness_returns_after_a_remote_engine_recovers(tmp_path: Path) -> None:
    one = parse({"source": {"arrays": {"x": np.arange(4)}}, "batch": {"size": 2}})
    with Server({"a": one, "b": one}, ServerOptions("127.0.0.1:0", None)) as server:
        server.health.set("b", ready=False, reason="its first batch fails")
        for problem in ("no dispatcher", "no dispatcher at all"):
            server._warm_up.on_remote_status(problem)
            assert {part.reason for part in server.health.parts.values()} == {problem}
        server._warm_up.on_remote_status(None)
        assert server.health.parts["a"].ready
        assert server.health.parts["b"].reason == "its first batch fails"
