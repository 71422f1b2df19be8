"""A worker that is stuck, by what TensorFlow writes."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from tests.server.cluster.conftest import free_port

from infeed_server.cluster.journal import JournalWatch
from infeed_server.cluster.relay import relay
from infeed_server.cluster.wedged import Wedge

PREFIX = "W0000 00:00:1795301389.141248   14956 worker_impl.cc:532] "
REFUSED = (
    f"{PREFIX}Failed to send task updates to dispatcher: NOT_FOUND: Failed to send worker update: "
    "Task 4000 not found\n"
)
AWAY = (
    f"{PREFIX}Failed to send task updates to dispatcher: UNAVAILABLE: Failed to send worker "
    "update: failed to connect to all addresses\n"
)


class Log:
    """Lines of a log, each so many seconds after the one before."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wedge = Wedge(30, lambda: self.now)

    def say(self, line: str, seconds: float) -> str | None:
        self.now += seconds
        self.wedge.hear(line)
        return self.wedge.reason


def test_the_same_refusal_for_too_long() -> None:
    log = Log()
    assert [log.say(REFUSED, 5) for _ in range(6)] == [None] * 6
    told = log.say(REFUSED, 5)
    assert told == (
        "TensorFlow cannot tell the dispatcher which tasks have ended, for 30 s: NOT_FOUND: Failed "
        "to send worker update: Task 4000 not found"
    )
    log.say("something else", 100)
    assert log.wedge.reason == told
    assert [log.say(REFUSED, 5) for _ in range(10)] == [told] * 10, "the first reason stays"


def test_a_dispatcher_that_is_away_is_no_refusal() -> None:
    log = Log()
    assert {log.say(AWAY, 5) for _ in range(50)} == {None}


def test_a_refusal_now_and_then_is_none() -> None:
    log = Log()
    assert {log.say(REFUSED, 20) for _ in range(50)} == {None}


SPEAKS = """
import logging, os, sys
from infeed_server.cluster.wedged import HeardErrors
heard = []
with HeardErrors(heard.append):
    level = os.environ["TF_CPP_MIN_LOG_LEVEL"]
    os.write(2, b"I0000 00:00:1 1 port.cc:153] information\\n")
    os.write(2, sys.argv[1].encode())
    print("python", file=sys.stderr)
    os.write(2, b"no end of line")
print("after", file=sys.stderr)
print(level, heard)
"""
CRASHES = """
import os
from infeed_server.cluster.wedged import HeardErrors
with HeardErrors(print):
    os.write(2, b"last words\\n")
    os.abort()
"""


@pytest.mark.parametrize(
    ("asked", "level", "shown"), [("3", "1", ""), ("0", "0", "I0000 00:00:1 1 port.cc:153] inform")]
)
def test_errors_are_passed_on_and_listened_to(asked: str, level: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPEAKS, REFUSED],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.endswith(f"{REFUSED}python\nno end of lineafter\n")
    assert done.stderr.startswith(shown or REFUSED)
    assert done.stdout == f"{level} {[REFUSED]!r}\n"


def test_the_last_words_of_a_crash_come_through() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], env=os.environ, capture_output=True, check=False
    )
    assert done.returncode == -6
    assert done.stderr == b"last words\n"


def test_a_relay_goes_on_when_nobody_takes_what_it_says() -> None:
    class Gone(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    news, target = io.BytesIO(), io.BytesIO()
    relay(io.BytesIO(b"one\ntwo\n"), Gone(), news, b"(?!)", b"two")
    assert news.getvalue() == b"two\n"
    relay(io.BytesIO(b"one\ntwo\n"), target, Gone(), b"(?!)", b"one")
    assert target.getvalue() == b"one\ntwo\n"


def test_a_relay_passes_each_line_on_at_once() -> None:
    class Buffered(io.BytesIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    flushed: list[bytes] = []
    relay(io.BytesIO(b"one\ntwo\n"), Buffered(), io.BytesIO(), b"(?!)", b"(?!)")
    assert flushed[:2] == [b"one\n", b"one\ntwo\n"]
    flushed.clear()
    relay(io.BytesIO(b"one\ntwo\n"), io.BytesIO(), Buffered(), b"(?!)", b"two")
    assert flushed[:1] == [b"two\n"]


def test_a_dispatcher_that_is_away_and_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infeed_server.cluster import journal, marker

    watch = JournalWatch(f"127.0.0.1:{free_port()}")
    watch.look()
    watch.look()
    assert "Connection refused" in str(watch.away)
    assert caplog.text.count("the dispatcher is away") == 1
    left = ["", "a", "a", "", "b"]
    answers = iter(marker.Marker("2", journal=each) if each else None for each in left)
    monkeypatch.setattr(journal.marker, "read", lambda *_: next(answers))
    for _ in left[:-1]:
        watch.look()
        assert (watch.away, watch.reason) == (None, None)
    watch.look()
    assert "began a new journal (b, before a)" in str(watch.reason)
