"""Coordinator, event by event: assigned steps, delivered items, and what ends the feed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.client.plans import fake_spec, plan_of
from tests.client.waiting import Clock

from infeed.batch import Batch
from infeed.cursor import Cursor
from infeed.prefetch import server_state
from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.ready_batches import EndOfFeed, FeedItem
from infeed.prefetch.server_state import (
    CONFIRMATION_TIMEOUT_SECONDS,
    MIN_LEFT_OUT_SECONDS,
    UNREACHABLE_WARNING_INTERVAL_SECONDS,
)
from infeed.prefetch.stream import MAX_DRAIN_SILENCE_SECONDS, Stream
from infeed.shared.errors import (
    AuthenticationError,
    FingerprintError,
    InvalidRequestError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    SampleError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    UserCodeError,
)
from infeed.wire.assembler import EndOfData, ReceivedBatch

LOST = ServerUnavailableError("cut")


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Recorded(Coordinator):
    """A coordinator, and the items that it delivers."""

    def __init__(self, plan: FeedPlan, clock: Clock) -> None:
        self.delivered: list[FeedItem] = []
        super().__init__("target", plan, self.delivered.append, clock.monotonic)

    def items(self) -> list[Any]:
        """Returns the items since the last call: steps of batches, an error, or the end."""
        items, self.delivered[:] = self.delivered.copy(), []
        return [item.step if isinstance(item, ReceivedBatch) else item for item in items]

    def end(self, server: str, error: BaseException) -> None:
        """Ends a stream of the server."""
        self.on_stream_ended(Stream(server, accepted=server in self._scheduler.servers), error)


def batch(step: int, size: int = 32) -> ReceivedBatch:
    ids = np.arange(4)
    return ReceivedBatch(
        step, Batch({}, start=4 * step, epoch=0, sample_ids=ids, mask=ids >= 0), size
    )


@pytest.fixture
def new_coordinator(clock: Clock) -> Callable[..., Recorded]:
    """Returns a factory of coordinators: `new_coordinator("ab")` has two servers. Only one of them
    serves at a time if `multi_server` is False."""

    def make(
        servers: Sequence[str] = "a",
        *,
        epochs: int | None = None,
        position: int = 0,
        multi_server: bool = True,
        connections: int = 1,
    ) -> Recorded:
        spec = fake_spec(multi_server=multi_server)
        cursor = Cursor(spec.name, spec.fingerprint, spec.seed, position)
        plan = plan_of(spec, epochs=epochs, state=cursor, connections=connections)
        coordinator = Recorded(plan, clock)
        coordinator.add_servers(list(servers))
        return coordinator

    return make


def connect(coordinator: Coordinator, *servers: str) -> list[Stream]:
    """Opens a stream to each server."""
    streams = []
    for server in servers:
        streams.append(coordinator.start_stream(server))
        coordinator.on_connected(streams[-1])
        coordinator.on_stream_accepted(streams[-1])
    return streams


def test_feed_fails_when_its_only_server_stays_lost(new_coordinator: Any, clock: Clock) -> None:
    coordinator = new_coordinator()
    connect(coordinator, "a")
    clock.now += 1000
    coordinator.check_timeouts()
    coordinator.end("a", LOST)
    clock.now += 59.9
    coordinator.check_timeouts()
    assert (coordinator.ended, coordinator.items()) == (False, [])
    clock.now += 0.1
    coordinator.check_timeouts()
    (error,) = coordinator.items()
    assert isinstance(error, ServerUnavailableError)
    assert "target: connection lost at position 0" in error.message
    assert "within 60 s; last errors: a: cut" in error.message
    assert coordinator.ended


def test_only_server_that_rejects_a_token_gets_the_next_one(
    new_coordinator: Any, clock: Clock, caplog: Any
) -> None:
    revoked = AuthenticationError("unknown or revoked token")
    coordinator = new_coordinator()
    (stream,) = connect(coordinator, "a")
    assert coordinator.next_request(stream) == 0
    with caplog.at_level(logging.WARNING, "infeed.prefetch.coordinator"):
        coordinator.on_stream_ended(stream, revoked)
    assert not coordinator.ended
    assert coordinator.connect_delay("a") == 1
    assert "a is left out of the feed for now: AuthenticationError" in caplog.text
    clock.now += 1
    (renewed,) = connect(coordinator, "a")
    assert coordinator.next_request(renewed) == 0
    coordinator.on_batch(renewed, batch(0))
    assert coordinator.items() == [0]
    coordinator.on_stream_ended(renewed, revoked)
    # The token of the next attempt is rejected before the stream begins.
    coordinator.on_stream_ended(Stream("a"), revoked)
    assert coordinator.items() == [revoked]


@pytest.mark.parametrize(
    "error",
    [
        *(AuthenticationError("a"), FingerprintError("b"), PermissionDeniedError("c")),
        *(PipelineNotFoundError("d"), ProtocolError("e"), SourceError("f"), ServerError("g")),
        ServerUnavailableError("h", code="RESOURCE_EXHAUSTED"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_sick_server_is_left_out_while_another_serves(
    new_coordinator: Any, clock: Clock, caplog: Any, error: Any
) -> None:
    coordinator = new_coordinator("ab")
    (good,) = connect(coordinator, "b")
    delays = []
    with caplog.at_level(logging.WARNING, "infeed.prefetch"):
        for _ in range(7):
            (sick,) = connect(coordinator, "a")
            coordinator.next_request(sick)
            coordinator.on_stream_ended(sick, error)
            delays.append(coordinator.connect_delay("a"))
            clock.now += delays[-1]
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    assert coordinator.counters(0)["left_out"] == 1
    (message,) = caplog.messages
    assert message == f"a is left out of the feed for now: {type(error).__name__}: {error.message}"
    assert coordinator.next_request(good) == 0
    coordinator.on_batch(good, batch(0))
    assert coordinator.items() == [0]


def test_slow_server_is_waited_for_until_few_batches_are_ready(
    new_coordinator: Any, clock: Clock
) -> None:
    """The window has eight batches."""
    coordinator = new_coordinator("ab")
    slow, fast = connect(coordinator, "a", "b")
    assert [coordinator.next_request(stream) for stream in (slow, fast, fast, fast)] == [0, 1, 2, 3]
    for step in (1, 2, 3):
        clock.now += 0.01
        coordinator.on_batch(fast, batch(step))
    clock.now += 0.5
    coordinator.on_batch(slow, batch(0))
    assert [coordinator.next_request(stream) for stream in (slow, fast, fast, fast)] == [4, 5, 6, 7]
    for step in (5, 6, 7):
        clock.now += 0.01
        coordinator.on_batch(fast, batch(step))
    assert coordinator.next_request(fast) is None
    coordinator.on_consumed(1)
    assert coordinator.next_request(fast) == 4
    counters = coordinator.counters(0)
    assert counters["hedges"] == 1
    assert counters["batch_rates"] == {"a": pytest.approx(1 / 0.53), "b": pytest.approx(100)}


def test_feed_ends_when_every_server_has_failed_the_next_step(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab")
    first, second = connect(coordinator, "a", "b")
    assert [coordinator.next_request(stream) for stream in (first, second)] == [0, 1]
    coordinator.on_stream_ended(first, SourceError("no such file"))
    coordinator.on_stream_ended(second, ServerError("out of threads"))
    assert not coordinator.ended  # they have failed different steps
    first, second = connect(coordinator, "a", "b")
    assert [coordinator.next_request(stream) for stream in (first, second)] == [0, 0]
    coordinator.on_stream_ended(second, ServerError("out of threads"))
    assert not coordinator.ended  # the other one may have recovered
    coordinator.on_stream_ended(first, SourceError("no such file"))
    (error,) = coordinator.items()
    assert type(error) is SourceError
    assert error.message == (
        "target: every server has failed at position 0; last errors: "
        "a: no such file; b: out of threads"
    )


def test_exhausted_servers_have_until_the_reconnect_timeout(
    new_coordinator: Any, clock: Clock
) -> None:
    coordinator = new_coordinator("a")
    coordinator.end("a", ServerUnavailableError("full", code="RESOURCE_EXHAUSTED"))
    assert not coordinator.ended
    clock.now += 60
    coordinator.check_timeouts()
    assert coordinator.ended


def test_returned_server_counts_as_interrupted_for_a_report(
    new_coordinator: Any, clock: Clock
) -> None:
    coordinator = new_coordinator("ab", connections=2)
    a, second, b = (coordinator.start_stream(*of) for of in (("a",), ("a", 1), ("b",)))
    for stream in (a, second, b):
        coordinator.on_stream_accepted(stream)
    coordinator.on_stream_ended(second, LOST)
    coordinator.on_stream_accepted(coordinator.start_stream("a", 1))
    assert coordinator.missing_servers == {}, "it has served all the time"
    coordinator.on_stream_ended(b, LOST)
    assert coordinator.lost_servers == {"b"}
    assert coordinator.missing_servers == {"b": "is lost"}
    clock.now += 30
    connect(coordinator, "b")
    clock.now += 10.9
    assert coordinator.lost_servers == set()
    assert coordinator.missing_servers == {"b": "has just returned"}
    clock.now += 0.1
    assert coordinator.missing_servers == {}


def test_server_that_was_never_reached_is_not_called_lost(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab")
    coordinator.on_stream_ended(coordinator.start_stream("b"), LOST)
    assert coordinator.missing_servers == {"b": "was never reached"}


def test_server_that_was_left_out_counts_as_interrupted(new_coordinator: Any, clock: Clock) -> None:
    coordinator = new_coordinator("ab")
    sick, _ = connect(coordinator, "a", "b")
    coordinator.on_stream_ended(sick, SourceError("no such file"))
    assert coordinator.missing_servers == {"a": "is left out for its error"}
    clock.now += 5
    (again,) = connect(coordinator, "a")
    assert coordinator.next_request(again) == 0
    coordinator.on_batch(again, batch(0))
    assert coordinator.missing_servers == {"a": "has just returned"}
    clock.now += 11
    assert coordinator.missing_servers == {}


STEP_FAILURES = [SampleError("a"), InvalidRequestError("d")]


@pytest.mark.parametrize("error", STEP_FAILURES)
def test_error_of_the_only_server_comes_behind_earlier_batches(
    new_coordinator: Any, error: Any
) -> None:
    coordinator = new_coordinator("a")
    (stream,) = connect(coordinator, "a")
    assert [coordinator.next_request(stream) for _ in range(3)] == [0, 1, 2]
    coordinator.on_batch(stream, batch(0))
    coordinator.on_stream_ended(stream, error)
    assert coordinator.items() == [0, error]


@pytest.mark.parametrize("error", STEP_FAILURES)
def test_error_that_a_second_server_confirms_ends_the_feed(
    new_coordinator: Any, clock: Clock, caplog: Any, error: Any
) -> None:
    coordinator = new_coordinator("abc")
    first, second, third = connect(coordinator, "a", "b", "c")
    assert [coordinator.next_request(stream) for stream in (third, first)] == [0, 1]
    coordinator.on_stream_ended(first, SampleError("first"))
    assert "a is left out of the feed for now: SampleError: first" in caplog.text
    assert coordinator.next_request(second) == 1
    coordinator.on_stream_ended(second, error)
    assert coordinator.next_request(third) is None  # no step behind the error is needed
    coordinator.on_stream_ended(third, LOST)
    (second,) = connect(coordinator, "b")  # it is healthy, and sends the step before
    assert 0 < coordinator.connect_delay("b") <= 0.1
    assert [coordinator.next_request(second) for _ in range(2)] == [0, None]
    coordinator.on_batch(second, batch(0))
    assert coordinator.items() == [0, error]
    assert coordinator.ended


def test_error_without_another_answer_ends_the_feed_in_time(
    new_coordinator: Any, clock: Clock
) -> None:
    coordinator = new_coordinator("ab")
    first, second = connect(coordinator, "a", "b")
    assert [coordinator.next_request(stream) for stream in (second, first)] == [0, 1]
    error = SampleError("bad")
    coordinator.on_stream_ended(first, error)
    clock.now += 2 * CONFIRMATION_TIMEOUT_SECONDS
    coordinator.check_timeouts()
    assert not coordinator.ended, "the step before it is still to come"
    coordinator.on_batch(second, batch(0))
    assert coordinator.next_request(second) == 1
    clock.now += 4 * 2 * CONFIRMATION_TIMEOUT_SECONDS - 0.1
    coordinator.check_timeouts()
    assert coordinator.items() == [0]
    clock.now += 0.1  # four times the usual seconds of a batch
    coordinator.check_timeouts()
    assert coordinator.items() == [error]


def test_span_of_a_second_answer_ends_as_a_duplicate(new_coordinator: Any, clock: Clock) -> None:
    coordinator = new_coordinator("ab")
    slow, fast = connect(coordinator, "a", "b")
    assert [coordinator.next_request(slow), coordinator.next_request(fast)] == [0, 1]
    coordinator.on_batch(fast, batch(1))
    clock.now += 2
    assert coordinator.next_request(fast) == 0
    coordinator.on_batch(fast, batch(0))
    ends: list[str] = []
    span: Any = SimpleNamespace(end=ends.append)
    coordinator.on_batch(slow, replace(batch(0), span=span))
    assert coordinator.items() == [0, 1]
    assert ends == ["duplicate"]


def test_error_ends_the_feed_at_once_if_one_serves_at_a_time(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab", multi_server=False)
    (stream,) = connect(coordinator, "a")
    assert coordinator.next_request(stream) == 0
    error = UserCodeError("bug")
    coordinator.on_stream_ended(stream, error)
    assert coordinator.items() == [error]


def test_error_of_the_trainer_itself_ends_the_feed(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab")
    first, second = connect(coordinator, "a", "b")
    assert [coordinator.next_request(stream) for stream in (first, second)] == [0, 1]
    error = MemoryError("no buffer")
    coordinator.on_stream_ended(second, error)
    assert coordinator.items() == [error]


def test_server_that_no_feed_reaches_is_named_once_a_minute(
    new_coordinator: Any, clock: Clock, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_state, "_named_at", {})
    for second in range(120):
        coordinator = new_coordinator("ab")  # of the next pass
        connect(coordinator, "a")
        coordinator.on_stream_ended(coordinator.start_stream("b"), LOST)
        clock.now += 1
        assert len(caplog.records) == 1 + second // 60
    assert "b cannot be reached, and is tried again: cut" in caplog.text


def test_loss_and_return_of_a_server_are_logged_once_each(
    new_coordinator: Any, clock: Clock, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_state, "_named_at", {})
    coordinator = new_coordinator("ab")
    name = coordinator._plan.spec.name

    def logged() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    a, _ = connect(coordinator, "a", "b")
    assert logged() == []
    coordinator.on_stream_ended(a, LOST)
    assert logged() == [f"{name}: a is lost, and is tried again: cut"]
    for _ in range(3):
        coordinator.on_stream_ended(coordinator.start_stream("a"), LOST)
    assert logged() == []
    (a,) = connect(coordinator, "a")
    assert logged() == [f"{name}: a is back"]
    coordinator.on_draining(a)
    coordinator.on_stream_ended(a, ServerUnavailableError("a ended the stream"))
    (a,) = connect(coordinator, "a")
    assert logged() == [], "it has announced its end, and came back"
    coordinator.on_draining(a)
    coordinator.on_stream_ended(a, ServerUnavailableError("a ended the stream"))
    clock.now += UNREACHABLE_WARNING_INTERVAL_SECONDS
    for _ in range(2):
        coordinator.on_stream_ended(coordinator.start_stream("a"), LOST)
    assert logged() == [f"{name}: a shuts down as announced, and is tried again: cut"]
    (a,) = connect(coordinator, "a")
    assert logged() == [f"{name}: a is back"]
    coordinator.on_stream_ended(coordinator.start_stream("b"), LOST)
    assert logged() == [f"{name}: b cannot be reached, and is tried again: cut"]
    coordinator.close()
    coordinator.on_stream_ended(a, LOST)
    assert logged() == []


def test_stream_is_overdue_if_its_announced_end_does_not_come(
    new_coordinator: Any, clock: Clock
) -> None:
    coordinator = new_coordinator()
    (stream,) = connect(coordinator, "a")
    coordinator.next_request(stream)
    clock.now += 1e6
    assert not coordinator.is_overdue(stream), "it may wait for the trainer for any time"
    coordinator.on_draining(stream)
    clock.now += MAX_DRAIN_SILENCE_SECONDS - 1
    assert not coordinator.is_overdue(stream)
    coordinator.on_batch(stream, batch(0))
    clock.now += MAX_DRAIN_SILENCE_SECONDS - 1
    assert not coordinator.is_overdue(stream), "it still sends batches"
    clock.now += 1
    assert coordinator.is_overdue(stream)
    stream.ended = True
    assert not coordinator.is_overdue(stream)


def test_end_of_data_is_valid_for_all_servers(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab")
    first, second = connect(coordinator, "a", "b")
    streams = [first, second, first]
    assert [coordinator.next_request(stream) for stream in streams] == [0, 1, 2]
    coordinator.on_end_of_data(EndOfData(2, 8))
    assert coordinator._scheduler.assign("b", 8) is None
    assert coordinator.items() == []
    coordinator.on_batch(Stream("b"), batch(1))
    coordinator.on_batch(Stream("a"), batch(0))
    *steps, end = coordinator.items()
    assert (steps, end) == ([0, 1], EndOfFeed(8))


def test_close_drops_all_batches(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab")
    first, second = connect(coordinator, "a", "b")
    assert [coordinator.next_request(first), coordinator.next_request(second)] == [0, 1]
    coordinator.on_batch(Stream("b"), batch(1))
    assert coordinator.counters(0)["prefetched_bytes"] == 32
    coordinator.close()
    coordinator.on_batch(Stream("a"), batch(0))
    assert coordinator.counters(0)["prefetched_bytes"] == 0
    assert coordinator._scheduler._reorder_buffer == {}
    assert coordinator.items() == []
    coordinator.end("a", LOST)
    coordinator.fail(LOST)
    assert coordinator.items() == []


LOCAL, REMOTE = "unix:/s", "host:7470"


@pytest.fixture
def hybrid(new_coordinator: Any) -> tuple[Recorded, Stream, Stream]:
    """A feed of a local and a remote server, with a window of eight batches; four wait for
    the trainer; and the streams."""
    coordinator = new_coordinator((LOCAL, REMOTE))
    local, remote = connect(coordinator, LOCAL, REMOTE)
    for expected in range(4):
        assert coordinator.next_request(local) == expected
        coordinator.on_batch(local, batch(expected))
    return coordinator, local, remote


def test_remote_server_is_spared_while_the_local_one_keeps_up(hybrid: Any) -> None:
    coordinator, local, remote = hybrid
    assert coordinator.next_request(remote) is None
    assert coordinator.next_request(local) == 4
    coordinator.on_consumed(1)  # the trainer takes more than the local server sends
    assert coordinator.next_request(remote) == 5
    coordinator.on_batch(local, batch(4))
    assert coordinator.next_request(remote) is None


def connect_twice(coordinator: Coordinator) -> tuple[Stream, Stream]:
    """Opens two connections to the server a."""
    streams = coordinator.start_stream("a", 0), coordinator.start_stream("a", 1)
    for stream in streams:
        coordinator.on_connected(stream)
        coordinator.on_stream_accepted(stream)
    return streams


def test_connections_of_a_server_replace_each_other(
    new_coordinator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = new_coordinator(connections=2)
    first, second = connect_twice(coordinator)
    assert coordinator.server_count == 1
    requested = [coordinator.next_request(stream) for stream in (first, second) * 4]
    assert requested == [*range(8)]
    coordinator.on_batch(second, batch(1))
    with caplog.at_level(logging.WARNING):
        coordinator.on_stream_ended(second, LOST)
    (record,) = caplog.records
    assert "connection 2 to a is lost, and is tried again: cut" in record.message
    assert coordinator.lost_servers == set()
    assert coordinator.server_count == 1
    for step in (0, 2, 4, 6):
        coordinator.on_batch(first, batch(step))
    again = [coordinator.next_request(first) for _ in range(3)]
    assert again == [3, 5, 7]
    for step in again:
        coordinator.on_batch(first, batch(step))
    assert coordinator.items() == [*range(8)]
    assert coordinator.counters(0)["servers"] == ("a",)


def test_connection_to_a_lost_server_gets_steps_when_accepted(
    new_coordinator: Any,
) -> None:
    coordinator = new_coordinator(connections=2)
    for stream in connect_twice(coordinator):
        coordinator.on_stream_ended(stream, LOST)
    stream = coordinator.start_stream("a", 0)
    coordinator.on_connected(stream)
    assert coordinator.next_request(stream) is None
    coordinator.on_stream_accepted(stream)
    assert coordinator.next_request(stream) == 0


def test_connection_that_has_ended_gets_no_steps(new_coordinator: Any) -> None:
    """The thread that sends its requests may come to it late."""
    coordinator = new_coordinator(connections=2)
    first, second = coordinator.start_stream("a", 0), coordinator.start_stream("a", 1)
    coordinator.on_connected(first)
    coordinator.on_stream_accepted(first)
    coordinator.on_stream_ended(second, LOST)
    coordinator.on_connected(second)
    assert [*coordinator._scheduler.servers] == ["a"]


def test_a_protocol_error_of_one_connection_is_not_the_servers(
    new_coordinator: Any, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    coordinator = new_coordinator(connections=2)
    first, second = connect_twice(coordinator)
    with caplog.at_level(logging.WARNING):
        coordinator.on_stream_ended(first, ProtocolError("bad checksum"))
    assert coordinator.lost_servers == set()
    assert [coordinator.next_request(second) for _ in range(2)] == [0, 1]
    assert [record.message for record in caplog.records] == [
        "fake: connection 1 to a is lost, and is tried again: bad checksum"
    ]
    # The link of the first goes on to be bad; the second delivers.
    coordinator.on_batch(second, batch(0))
    again = coordinator.start_stream("a", 0)
    coordinator.on_stream_accepted(again)
    coordinator.on_stream_ended(again, ProtocolError("bad checksum"))
    assert coordinator.lost_servers == set()
    # So is an error of the second, once the first has delivered.
    first = coordinator.start_stream("a", 0)
    coordinator.on_stream_accepted(first)
    step = coordinator.next_request(first)
    coordinator.on_batch(first, batch(step))
    coordinator.on_stream_ended(second, ProtocolError("bad checksum"))
    assert coordinator.lost_servers == set()
    # An error of the first, too, is the server's.
    coordinator.on_stream_ended(first, ProtocolError("bad checksum"))
    assert coordinator.lost_servers == {"a"}
    assert coordinator.counters(0)["left_out"] == 1


def test_server_is_left_out_until_another_connection_sends(
    new_coordinator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = new_coordinator(connections=2)
    first, second = connect_twice(coordinator)
    assert [coordinator.next_request(stream) for stream in (first, second)] == [0, 1]
    with caplog.at_level(logging.WARNING):
        coordinator.on_stream_ended(first, SourceError("away"))
        assert coordinator.lost_servers == {"a"}
        coordinator.on_batch(second, batch(1))
    assert [record.message for record in caplog.records] == [
        "a is left out of the feed for now: SourceError: away",
        "a serves the feed again",
    ]
    assert coordinator.lost_servers == set()
    assert coordinator.next_request(second) == 0


def test_one_connection_at_a_time_tries_a_server_that_is_lost(
    new_coordinator: Any, clock: Clock
) -> None:
    coordinator = new_coordinator(connections=2)
    for stream in connect_twice(coordinator):
        assert coordinator.lost_servers == set()
        coordinator.on_stream_ended(stream, LOST)
    assert coordinator.lost_servers == {"a"}
    clock.now += coordinator.connect_delay("a")
    stream = coordinator.start_stream("a", 1)
    assert coordinator.connect_delay("a") == math.inf
    coordinator.on_stream_accepted(stream)
    assert coordinator.connect_delay("a") == 0
    assert coordinator.lost_servers == set()


def test_connections_that_fail_together_are_one_failure(new_coordinator: Any, clock: Clock) -> None:
    coordinator = new_coordinator("ab", connections=2)
    for stream in connect_twice(coordinator):
        coordinator.on_stream_ended(stream, SourceError("away"))
    assert coordinator.connect_delay("a") == MIN_LEFT_OUT_SECONDS
    assert coordinator.counters(0)["left_out"] == 1


def test_second_connection_of_the_only_server_confirms_no_error(new_coordinator: Any) -> None:
    coordinator = new_coordinator("ab", connections=2)
    first, second = connect_twice(coordinator)
    assert coordinator.next_request(first) == 0
    coordinator.on_stream_ended(first, SampleError("bad"))
    assert coordinator._scheduler.probe(second.name, 8) == 0
    coordinator.on_stream_ended(second, SampleError("bad"))
    assert coordinator.items() == []  # b may have the sample


@pytest.mark.parametrize(
    ("server", "multi_server", "connections"),
    [("a:1", True, 3), ("a:1", False, 1), ("unix:/a", True, 1)],
)
def test_only_a_link_has_several_connections(
    server: str, multi_server: bool, connections: int
) -> None:
    plan = plan_of(fake_spec(multi_server=multi_server), connections=3)
    assert plan.connections_to(server) == connections
