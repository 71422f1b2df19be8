"""gRPC statuses: infeed's errors keep their class, and any other ending maps to an error."""

from __future__ import annotations

import base64
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.http2.connection import Http2ProtocolError
from infeed.rpc.status import CODES, map_connection_error, map_status
from infeed.shared import errors
from infeed.shared.errors import (
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)
from infeed.v1 import status_pb2

LEAVES = [error for error in errors.BY_REASON.values() if error is not errors.InfeedError]
GRPC = {":status": "200", "content-type": "application/grpc"}


def trailers(code: int, message: str = "", details: bytes = b"", padded: bool = True) -> Any:
    sent = {"grpc-status": str(code), "grpc-message": quote(message)}
    if details:
        text = base64.b64encode(details).decode()
        sent["grpc-status-details-bin"] = text if padded else text.rstrip("=")
    return sent


def test_codes_match_grpc() -> None:
    assert {name: number for number, name in enumerate(CODES)} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("error", LEAVES)
def test_infeed_errors_keep_class_message_and_metadata(
    error: type[InfeedError], padded: bool, status_of: Callable[[InfeedError], Any]
) -> None:
    status = status_of(error("what happened: \u00e9 100%\n", sample_id=3))
    ((key, details),) = status.trailing_metadata
    assert key == "grpc-status-details-bin"
    sent = trailers(status.code.value[0], status.details, details, padded)
    for headers, trailing in ((GRPC, sent), ({**GRPC, **sent}, {})):  # trailers only
        received = map_status(headers, trailing, "host:1")
        assert type(received) is error
        assert received.message == "what happened: \u00e9 100%\n"
        assert received.metadata == {"sample_id": "3"}


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("UNAVAILABLE", "connection refused", ServerUnavailableError),
        ("CANCELLED", "bye", ServerUnavailableError),
        ("DEADLINE_EXCEEDED", "too late", StallError),
        ("UNIMPLEMENTED", "Method not found!", ProtocolError),
        ("INTERNAL", "a bug", ServerError),
        ("RESOURCE_EXHAUSTED", "too many: 100 %", ServerUnavailableError),
        ("UNAUTHENTICATED", "no token", AuthenticationError),
        ("PERMISSION_DENIED", "not yours", PermissionDeniedError),
    ],
)
def test_errors_without_details_are_mapped_by_code(
    code: str, details: str, expected: type[InfeedError]
) -> None:
    error = map_status(GRPC, trailers(CODES.index(code), details), "host:1")
    assert type(error) is expected
    assert "host:1" in error.message
    assert details in error.message
    exhausted = isinstance(error, ServerUnavailableError) and error.exhausted
    assert exhausted == (code == "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("status", ["17", "-1", "x", "", "9" * 5000, "\u00b2"])
def test_unknown_status_is_a_server_error(status: str) -> None:
    error = map_status(GRPC, {"grpc-status": status}, "host:1")
    assert isinstance(error, ServerError)
    assert f"host:1 failed with status {status}: no reason given" in error.message


@pytest.mark.parametrize(
    ("headers", "expected", "message"),
    [
        ({}, ServerUnavailableError, "the call ended without a status"),
        (GRPC, ServerUnavailableError, "the call ended without a status"),
        ({":status": "429"}, ServerUnavailableError, "HTTP status 429"),
        ({**GRPC, ":status": "504"}, ServerUnavailableError, "HTTP status 504"),
        ({":status": "404", "content-type": "text/html"}, ProtocolError, "404, text/html"),
        ({":status": "200"}, ProtocolError, "200, no content type"),
        ({":status": "301"}, ProtocolError, "301"),
    ],
)
def test_responses_that_are_not_grpc(
    headers: dict[str, str], expected: type[InfeedError], message: str
) -> None:
    error = map_status(headers, {}, "host:1")
    assert type(error) is expected
    assert "host:1" in error.message
    assert message in error.message


def test_details_that_pure_python_protobuf_cannot_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where protobuf has no compiled classes, as on free-threaded Python."""
    monkeypatch.setattr(status_pb2, "Status", SimpleNamespace(FromString=bytes.decode))
    error = map_status(GRPC, trailers(3, "bad", b"\xff"), "host:1")
    assert isinstance(error, ServerError)
    assert "bad" in error.message


texts = st.text(st.characters(max_codepoint=255), max_size=20)


@examples(300)
@given(
    st.dictionaries(st.sampled_from([":status", "content-type", "grpc-status"]), texts),
    st.dictionaries(
        st.sampled_from(["grpc-status", "grpc-message", "grpc-status-details-bin"]), texts
    ),
)
def test_any_headers_and_trailers_are_mapped(
    headers: dict[str, str], trailing: dict[str, str]
) -> None:
    error = map_status(headers, trailing, "host:1")
    assert error is None or isinstance(error, InfeedError)


def test_a_control_plane_is_named_as_one() -> None:
    error = map_connection_error(Http2ProtocolError("it uses HTTP/1, not HTTP/2"), "h:7471", "")
    assert str(error).endswith(
        "; if this is the server's --http address, give its --listen address"
    )
