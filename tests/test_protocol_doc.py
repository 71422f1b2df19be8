"""Checks of the protocol in docs/architecture.md: values of limits, names of messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infeed.shared.spec import MAX_BATCH_SIZE
from infeed.v1 import stream_pb2
from infeed_server.order import MAX_POSITION
from infeed_server.rpc import answers, batch_stream, interceptor, server
from infeed_server.serving import request_checks

PAGE = (Path(__file__).resolve().parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
LIMITS = PAGE.partition("\n### Limits\n")[2].partition("\n### ")[0]


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        ("one request message", "64 KiB", server._MAX_REQUEST_BYTES >> 10),
        ("unanswered requests", "1024", answers.MAX_PENDING_REQUESTS),
        ("concurrent HTTP/2 streams", "512", server._MAX_STREAMS_OF_CONNECTION),
        ("`batch_size`", "131,072", MAX_BATCH_SIZE),
        ("`batch_size`", "1 GiB", request_checks._MAX_BATCH_BYTES >> 30),
        ("`world_size`", "65,536", request_checks._MAX_WORLD_SIZE),
        ("`feed_id`", "128 characters", request_checks._MAX_FEED_ID_CHARS),
        ("position", "2^62", MAX_POSITION.bit_length() - 1),
        ("first message of a call", "10 s", interceptor.FIRST_MESSAGE_TIMEOUT_SECONDS),
    ],
)
def test_limit_has_the_documented_value(row: str, text: str, value: float) -> None:
    (line,) = re.findall(rf"^\| {re.escape(row)}.*$", LIMITS, re.MULTILINE)
    assert text in line
    numbers = re.findall(r"\d+", text.replace(",", "").replace("2^", ""))
    assert [float(number) for number in numbers] == [value]


def test_documented_heartbeat_is_that_of_the_code() -> None:
    assert f"sent nothing for {batch_stream._HEARTBEAT_INTERVAL_SECONDS:g} s" in PAGE


def test_every_message_of_a_stream_is_described() -> None:
    event = stream_pb2.StreamBatchesResponse.DESCRIPTOR.oneofs_by_name["event"]
    for field in event.fields:
        assert field.message_type.name in PAGE
