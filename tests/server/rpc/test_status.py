"""Errors as statuses: whatever they hold, they reach the client."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.call import GrpcCall
from infeed.errors import BY_REASON, InfeedError, SampleError, ServerError, UserCodeError
from infeed.status import map_status
from infeed.v1 import feed_service_pb2
from infeed_server.rpc.call import StatusError
from infeed_server.rpc.status import ended_by, to_status

TRAILERS = 8192
"""Bytes of trailers that peers take by default."""

Call = Callable[[Exception], InfeedError]


def by_grpc(address: str) -> InfeedError | None:
    """What a client with default options gets."""
    with grpc.insecure_channel(address) as channel:
        method: Any = channel.unary_unary("/test/Fail")
        with pytest.raises(grpc.RpcError) as caught:
            method(b"", timeout=60)
    error: Any = caught.value
    trailers = {"grpc-status": str(error.code().value[0]), "grpc-message": quote(error.details())}
    for key, value in error.trailing_metadata():
        trailers[key] = base64.b64encode(value).decode() if key.endswith("-bin") else value
    return map_status({}, trailers, "the server")


def by_infeed(address: str) -> InfeedError | None:
    """What infeed's own client gets."""
    request = iter([feed_service_pb2.GetPipelineRequest()])
    call = GrpcCall(
        address, "/test/Fail", request, timeout=60, draining=lambda: None, closed=lambda _: None
    )
    with contextlib.closing(call), pytest.raises(InfeedError) as caught:
        call.next()
    return caught.value


@pytest.fixture(scope="module", params=[by_grpc, by_infeed])
def call(request: pytest.FixtureRequest) -> Iterator[Call]:
    """Has a server raise an error; what a client gets."""
    raised: list[Exception] = []

    def handle(_: bytes, context: grpc.ServicerContext) -> bytes:
        problem = ended_by(raised.pop())
        assert isinstance(problem, StatusError)
        context.set_trailing_metadata(problem.trailers)
        context.abort(problem.code, problem.details)

    handler = grpc.method_handlers_generic_handler(
        "test", {"Fail": grpc.unary_unary_rpc_method_handler(handle)}
    )
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()

        def fail(error: Exception) -> InfeedError:
            raised.append(error)
            arrived = request.param(f"127.0.0.1:{port}")
            assert arrived is not None
            return arrived

        yield fail
        server.stop(0).wait()


@pytest.mark.parametrize("reason", sorted(BY_REASON))
def test_every_error_arrives_as_it_was(call: Call, reason: str) -> None:
    error = BY_REASON[reason](
        "what was wrong: \u00e9\u4e16 100%\nsecond line", file="/a b/\u00fc", n=3
    )
    arrived = call(error)
    assert type(arrived) is BY_REASON[reason]
    assert str(arrived) == str(error)
    assert arrived.metadata == error.metadata


def test_an_error_without_a_name(call: Call) -> None:
    arrived = call(ZeroDivisionError("division by zero"))
    assert type(arrived) is ServerError
    number = arrived.metadata["log"]
    assert str(arrived) == (
        f"the server failed (ZeroDivisionError); its log tells more, under {number}"
    )


@pytest.mark.parametrize(
    ("text", "file", "told"),
    [
        ('File "/srv/app/code.py", line 3', "", 'File "code.py", line 3'),
        ("'/srv/my app/code.py' and /etc/passwd: no", "", "'code.py' and passwd: no"),
        ("photo /data/a/1.jpg: bad, in /srv/code.py", "/data/a/1.jpg", None),
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
def test_folders_of_the_server_stay_there(text: str, file: str, told: str | None) -> None:
    status = to_status(UserCodeError(text, file=file or None))
    assert status.message == (told or "photo /data/a/1.jpg: bad, in code.py")


@pytest.mark.parametrize(
    "letter", ["x", "\n", "%", "\u00e9", "\u4e16", "\U0001f600", "\x00", "\udc80"]
)
def test_a_traceback_of_any_length_arrives_with_both_ends(call: Call, letter: str) -> None:
    text = f"sample 3 failed\n{letter * 100_000}\nValueError: the reason"
    arrived = call(UserCodeError(text, sample_id=3, file="/data/" + "f" * 5000, stage=letter * 500))
    assert type(arrived) is UserCodeError
    assert str(arrived).startswith("sample 3 failed\n")
    assert str(arrived).endswith("\nValueError: the reason")
    assert "characters left out" in str(arrived)
    assert arrived.metadata["sample_id"] == "3"
    assert arrived.metadata["file"].startswith("/data/fff")


def test_a_path_of_common_length_is_never_cut() -> None:
    path = "/data/" + "f" * 800
    status = to_status(SampleError("bad", file=path, sample_id=1, offset=2))
    assert path.encode() in status.SerializeToString()


@examples(60)
@given(
    message=st.text(max_size=60).flatmap(
        lambda text: st.integers(1, 3000).map(lambda times: text * times)
    ),
    metadata=st.dictionaries(
        st.sampled_from([f"key{number}" for number in range(30)]), st.text(max_size=2000)
    ),
)
def test_a_status_fits_into_trailers(message: str, metadata: dict[str, str]) -> None:
    status = to_status(SampleError(message, **metadata))
    detail = len(status.SerializeToString()) * 4 // 3
    escaped = sum(
        1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in status.message.encode()
    )
    assert detail + escaped + 200 <= TRAILERS
