"""gRPC as the feed sees it: targets, waiting, errors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from infeed import errors
from infeed.errors import (
    InfeedError,
    InvalidRequestError,
    PipelineNotFoundError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)
from infeed.status import METADATA_KEY, error_from_details
from infeed.testing import FakeTransport
from infeed.transport import GrpcTransport, map_errors

LEAVES = [error for error in errors.BY_REASON.values() if error is not errors.InfeedError]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class FakeRpcError(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str, metadata: Any = ()) -> None:
        super().__init__()
        self.parts = (code, details, metadata)

    def code(self) -> grpc.StatusCode:
        return self.parts[0]

    def details(self) -> str:
        return self.parts[1]

    def trailing_metadata(self) -> Any:
        return self.parts[2]


@pytest.mark.parametrize("error", LEAVES)
def test_every_error_arrives_as_what_it_was(
    error: type[InfeedError], status_of: Callable[[InfeedError], Any]
) -> None:
    told = status_of(error("what happened", sample_id=3))
    with pytest.raises(error, match=r"^what happened$") as caught, map_errors("host:1"):
        raise FakeRpcError(told.code, told.details, told.trailing_metadata)
    assert caught.value.metadata == {"sample_id": "3"}


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("UNAVAILABLE", "connection refused", ServerUnavailableError),
        ("CANCELLED", "bye", ServerUnavailableError),
        ("INTERNAL", "Received RST_STREAM with error code 2", ServerUnavailableError),
        ("UNKNOWN", "Stream removed", ServerUnavailableError),
        ("DEADLINE_EXCEEDED", "too late", StallError),
        ("UNIMPLEMENTED", "Method not found!", ProtocolError),
        ("INTERNAL", "a bug", ServerError),
        ("RESOURCE_EXHAUSTED", "too large", ServerError),
    ],
)
def test_errors_without_details_go_by_their_code(
    code: str, details: str, expected: type[InfeedError]
) -> None:
    with pytest.raises(expected, match=rf"host:1.*{details}"), map_errors("host:1"):
        raise FakeRpcError(grpc.StatusCode[code], details)


def test_damaged_and_foreign_details_are_passed_over() -> None:
    assert error_from_details(b"\xff\xff") is None
    assert error_from_details(b"") is None
    foreign = any_pb2.Any()
    foreign.Pack(error_details_pb2.ErrorInfo(reason="STALLED", domain="example.com"))
    other = any_pb2.Any()
    other.Pack(error_details_pb2.DebugInfo(detail="stack"))
    status = status_pb2.Status(code=5, message="no", details=[other, foreign])
    assert error_from_details(status.SerializeToString()) is None
    metadata = ((METADATA_KEY, status.SerializeToString()),)
    with pytest.raises(ServerError, match="NOT_FOUND: no"), map_errors("host:1"):
        raise FakeRpcError(grpc.StatusCode.NOT_FOUND, "no", metadata)


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match=r"^mine$"), map_errors("host:1"):
        raise ValueError("mine")


@pytest.mark.parametrize("target", ["", " , ", "host", "dns:///host", "host:http", "a:1,b"])
def test_targets_that_make_no_sense(target: str) -> None:
    with pytest.raises(InvalidRequestError):
        GrpcTransport(target)


@pytest.mark.parametrize("prefix", ["", "dns:///", "ipv4:"])
def test_targets(prefix: str, serve: Any, fake: FakeTransport) -> None:
    transport = GrpcTransport(prefix + serve(fake).address)
    assert transport.get_pipeline("fake") == fake.spec
    transport.close()
    transport.close()


def test_unix_socket(serve: Any, fake: FakeTransport, tmp_path: Path) -> None:
    transport = GrpcTransport(serve(fake, address=f"unix:{tmp_path}/s").address)
    assert transport.get_pipeline("fake") == fake.spec
    transport.close()


def test_list_follows_the_pages(serve: Any, arrays: Any) -> None:
    fakes = [FakeTransport(arrays, name=f"p{index}") for index in range(5)]
    transport = GrpcTransport(serve(*fakes).address)
    assert [spec.name for spec in transport.list_pipelines()] == ["p0", "p1", "p2", "p3", "p4"]
    transport.close()


def test_unknown_pipeline(serve: Any, fake: FakeTransport) -> None:
    transport = GrpcTransport(serve(fake).address)
    with pytest.raises(PipelineNotFoundError, match="no pipeline 'other'; known: fake"):
        transport.get_pipeline("other")
    transport.close()


def test_words_of_a_newer_server(serve: Any, fake: FakeTransport) -> None:
    class Newer:
        spec = fake.spec

        @staticmethod
        def to_proto() -> Any:
            message = fake.spec.to_proto()
            message.on_error = 99  # type: ignore[assignment]
            return message

    server = serve(fake)
    server.pipelines["fake"] = type("", (), {"spec": Newer})
    transport = GrpcTransport(server.address)
    with pytest.raises(ProtocolError, match=r"sent 99 for OnError.*upgrade infeed"):
        transport.get_pipeline("fake")
    transport.close()


def test_no_server_names_target_seconds_and_reason() -> None:
    target = f"127.0.0.1:{free_port()}"
    transport = GrpcTransport(target)
    begin = time.monotonic()
    with pytest.raises(ServerUnavailableError, match=rf"{target} within 0.4 s.*[Cc]onn.*refused"):
        transport.get_pipeline("fake", timeout=0.4)
    assert time.monotonic() - begin < 2
    transport.close()


def test_a_peer_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        transport = GrpcTransport(target)
        with pytest.raises(ServerUnavailableError, match=r"within 0.3 s.*did not answer in time"):
            transport.get_pipeline("fake", timeout=0.3)
        transport.close()


def test_a_peer_that_is_no_infeed_server() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    transport = GrpcTransport(f"127.0.0.1:{port}")
    with pytest.raises(ProtocolError, match="not as an infeed server"):
        transport.get_pipeline("fake")
    transport.close()
    server.stop(0).wait()


def test_waits_for_a_server_that_is_not_up_yet(serve: Any, fake: FakeTransport) -> None:
    server = serve(fake)
    server.stop()
    transport = GrpcTransport(server.address)
    timer = threading.Timer(0.5, server.start)
    timer.start()
    assert transport.get_pipeline("fake", timeout=10) == fake.spec
    timer.join()
    transport.close()


def test_the_first_server_that_answers(serve: Any, fake: FakeTransport) -> None:
    transport = GrpcTransport(f"127.0.0.1:{free_port()}, {serve(fake).address}")
    assert transport.get_pipeline("fake") == fake.spec
    transport.close()


def test_a_closed_transport_says_so(serve: Any, fake: FakeTransport) -> None:
    transport = GrpcTransport(serve(fake).address)
    transport.close()
    with pytest.raises(ServerUnavailableError, match="was closed"):
        transport.get_pipeline("fake", timeout=0.1)


def test_no_channel_before_it_is_needed() -> None:
    before = threading.active_count()
    GrpcTransport("127.0.0.1:1")
    assert threading.active_count() == before
