"""Errors as statuses, and their way to clients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.rpc.call import GrpcCall
from infeed.shared.errors import (
    BY_REASON,
    InfeedError,
    SampleError,
    UserCodeError,
)
from infeed.v1 import feed_service_pb2
from infeed_server.rpc.status import to_call_error, to_status

MAX_TRAILER_BYTES = 8192
"""The default limit of clients."""

SendError = Callable[[Exception], InfeedError]


@pytest.fixture(scope="module")
def send_error() -> Iterator[SendError]:
    """Raises an error in a handler; returns the error that a trainer gets."""
    errors: list[Exception] = []

    def handle(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort_with_status(rpc_status.to_status(to_call_error(errors.pop()).status))

    handler = grpc.method_handlers_generic_handler(
        "test", {"Fail": grpc.unary_unary_rpc_method_handler(handle)}
    )
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()

        def send(error: Exception) -> InfeedError:
            errors.append(error)
            call = GrpcCall(
                f"127.0.0.1:{port}",
                "/test/Fail",
                iter([feed_service_pb2.GetPipelineRequest()]),
                timeout=60,
                on_draining=lambda: None,
            )
            with contextlib.closing(call), pytest.raises(InfeedError) as caught:
                call.next()
            return caught.value

        yield send
        server.stop(0).wait()


def error_info(status: Any) -> error_details_pb2.ErrorInfo:
    (detail,) = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    return info


@pytest.mark.parametrize("reason", sorted(BY_REASON))
def test_every_error_arrives_unchanged(send_error: SendError, reason: str) -> None:
    error = BY_REASON[reason](
        "what was wrong: \u00e9\u4e16 100%\nsecond line", file="/a b/\u00fc", n=3
    )
    received = send_error(error)
    assert type(received) is BY_REASON[reason]
    assert str(received) == str(error)
    assert received.metadata == error.metadata


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ('File "/srv/app/code.py", line 3', "", 'File "code.py", line 3'),
        ("'/srv/my app/code.py' and /etc/passwd: no", "", "'code.py' and passwd: no"),
        (
            "photo /data/a/1.jpg: bad, in /srv/code.py",
            "/data/a/1.jpg",
            "photo /data/a/1.jpg: bad, in code.py",
        ),
        ("photo '/data/my a/1.jpg': bad", "/data/my a/1.jpg", "photo '/data/my a/1.jpg': bad"),
        (
            "gs://bucket/a/b.tfrecord, http://host/x/y",
            "",
            "gs://bucket/a/b.tfrecord, http://host/x/y",
        ),
        ("3/4/5 of a/b/c and /one", "", "3/4/5 of a/b/c and /one"),
        ("(see /usr/lib/python3/x.py)", "", "(see x.py)"),
    ],
)
def test_folders_of_the_server_are_removed(text: str, file: str, expected: str) -> None:
    assert to_status(UserCodeError(text, file=file or None)).message == expected


def test_invalid_unicode_in_file_names_is_replaced() -> None:
    # A file name on Linux is any bytes; Python represents invalid ones as lone surrogates.
    status = to_status(SampleError("no image: photo\udcff.jpg", file="photo\udcff.jpg"))
    assert status.message == "no image: photo?.jpg"
    assert error_info(status).metadata["file"] == "photo?.jpg"


@pytest.mark.parametrize(
    "character", ["x", "\n", "%", "\u00e9", "\u4e16", "\U0001f600", "\x00", "\udc80"]
)
def test_long_traceback_arrives_with_both_ends(send_error: SendError, character: str) -> None:
    text = f"sample 3 failed\n{character * 100_000}\nValueError: the reason"
    error = UserCodeError(text, sample_id=3, file="/data/" + "f" * 5000, stage=character * 500)
    received = send_error(error)
    assert type(received) is UserCodeError
    assert str(received).startswith("sample 3 failed\n")
    assert str(received).endswith("\nValueError: the reason")
    assert "characters left out" in str(received)
    assert received.metadata["sample_id"] == "3"
    assert received.metadata["file"].startswith("/data/fff")


@examples(60)
@given(
    message=st.text(max_size=60).flatmap(
        lambda text: st.integers(1, 3000).map(lambda times: text * times)
    ),
    metadata=st.dictionaries(
        st.sampled_from([f"key{number}" for number in range(30)]), st.text(max_size=2000)
    ),
)
def test_status_fits_into_trailers(message: str, metadata: dict[str, str]) -> None:
    status = to_status(SampleError(message, **metadata))
    detail = len(status.SerializeToString()) * 4 // 3
    escaped = sum(
        1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in status.message.encode()
    )
    assert detail + escaped + 200 <= MAX_TRAILER_BYTES
