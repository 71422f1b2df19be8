"""Errors of a stream, from the engine to peers of all kinds."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

import infeed
from infeed.errors import BY_REASON, DOMAIN, InfeedError, UserCodeError
from infeed.status import error_from_details
from infeed_server.rpc.status import to_status


def info(status: Any) -> error_details_pb2.ErrorInfo:
    (detail,) = status.details
    result = error_details_pb2.ErrorInfo()
    assert detail.Unpack(result)
    return result


@pytest.mark.parametrize("kind", BY_REASON.values(), ids=BY_REASON)
def test_a_status_as_the_official_classes_read_it(kind: type[InfeedError]) -> None:
    status = to_status(kind("what was wrong: ü", file="a.jpg", sample_id=3, offset=None))
    assert status.code == getattr(grpc.StatusCode, kind.code).value[0]
    assert status.message == "what was wrong: ü"
    told = info(status)
    assert (told.reason, told.domain) == (kind.reason, DOMAIN)
    assert dict(told.metadata) == {"file": "a.jpg", "sample_id": "3"}
    assert type(error_from_details(status.SerializeToString())) is kind


def test_a_short_error_is_not_cut() -> None:
    text = "Traceback\n" + "  a line of it\n" * 100
    status = to_status(UserCodeError(text, path="p" * 1000))
    assert status.message == text
    assert info(status).metadata["path"] == "p" * 1000


def test_names_that_are_no_unicode_are_told() -> None:
    # A file's name on Linux is any bytes; Python keeps the wrong ones as lone surrogates.
    status = to_status(infeed.SampleError("no image: photo\udcff.jpg", file="photo\udcff.jpg"))
    assert status.message == "no image: photo?.jpg"
    assert info(status).metadata["file"] == "photo?.jpg"


@pytest.mark.parametrize("filler", ["x", "ü", "\n", "%", "漢"])
def test_a_long_message_ends_a_stream_of_default_options(
    live: Any, peer: Any, refusal: Any, filler: str
) -> None:
    message = "it began here " + filler * 100_000 + " ValueError: and ended here"
    live.held.error = UserCodeError(message, pipeline="held", stack="s" * 100_000)
    _, error = peer().open().ask(0).rest()
    code, told = refusal(error)
    assert code == "FAILED_PRECONDITION"
    assert isinstance(told, UserCodeError)
    assert told.message.startswith("it began here " + filler)
    assert told.message.endswith(filler + " ValueError: and ended here")
    assert "characters left out" in told.message
    assert error.details() == told.message
    assert told.metadata["pipeline"] == "held"
    assert "characters left out" in told.metadata["stack"]


def test_a_long_message_reaches_a_feed(live: Any) -> None:
    live.held.error = UserCodeError("it began here\n" + "x" * 100_000 + "\nand ended here")
    with infeed.connect(live.address, "held") as feed, pytest.raises(UserCodeError) as caught:
        feed.next(30)
    assert str(caught.value).startswith("it began here\n")
    assert str(caught.value).endswith("\nand ended here")
