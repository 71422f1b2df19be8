"""Tests of `data_service/gateway/read_watch.py`."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.shared.errors import SourceError
from infeed_server.data_service.gateway.read_watch import ReadWatch


class FakeClient:
    """A client whose dispatcher and workers a test changes."""

    address = "10.0.0.1:7472"

    def __init__(self) -> None:
        self.journal = "first"
        self.silent: dict[str, float] = {}

    @property
    def lost_workers(self) -> tuple[str, ...]:
        return tuple(self.silent)

    def silent_seconds(self) -> dict[str, float]:
        return self.silent

    def require(self) -> None:
        pass


def watched(client: Any) -> ReadWatch:
    return ReadWatch(client, "photos")


def test_read_ends_when_the_dispatcher_lost_its_journal() -> None:
    client = FakeClient()
    watch = watched(client)
    watch.require_job()
    client.journal = "second"
    for check in (watch.require_job, lambda: watch.on_wait(0.5)):
        with pytest.raises(
            SourceError, match=r"the job of 'photos' was lost: .* journal"
        ) as raised:
            check()
        assert client.address in str(raised.value)


@pytest.mark.parametrize(("before", "after"), [("", "first"), ("first", ""), ("", "")])
def test_dispatcher_without_a_known_journal_has_lost_none(before: str, after: str) -> None:
    client = FakeClient()
    client.journal = before
    watch = watched(client)
    client.journal = after
    watch.require_job()


def test_wait_for_a_lost_worker_is_logged_once_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient()
    watch = watched(client)
    client.silent = {"10.0.0.2:7473": 25.0}
    watch.on_wait(19)
    assert not caplog.records
    for seconds in (20, 40, 119):
        client.silent = {"10.0.0.2:7473": seconds + 5.0}
        watch.on_wait(seconds)
    (record,) = caplog.records
    assert record.message.startswith(
        "photos: no batch for 20 s; these workers do not answer: 10.0.0.2:7473. An infeed"
    )
    client.silent = {"10.0.0.2:7473": 119.0}
    watch.on_wait(500)  # it was lost only now: its tasks may still end
    client.silent = {"10.0.0.2:7473": 120.0}
    with pytest.raises(SourceError, match=r"no batch of 'photos' for 500 s, .*: 10\.0\.0\.2:7473"):
        watch.on_wait(500)


def test_slow_batch_is_waited_for_without_lost_workers(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient()
    watch = watched(client)
    watch.on_wait(10_000)
    client.silent = {"10.0.0.3:7473": 10_000.0}
    lost_before = watched(client)
    lost_before.on_wait(10_000)
    assert not caplog.records
