"""Fixtures: a clock that tests set, and the requests that wait for other ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.harness.clock import ManualClock
from tests.harness.waiting import wait_until

from infeed_server.engines.base import Request
from infeed_service.sequential import engine as engine_module
from infeed_service.sequential import shared_reader as reader_module
from infeed_service.sequential.ranks import RankStream, RankTracker
from infeed_service.sequential.shared_reader import SharedReader


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of rank trackers; readers check at short intervals."""
    clock = ManualClock(1000.0)
    ranks = partial(RankTracker, clock=clock)
    monkeypatch.setattr(engine_module, "RankTracker", ranks)
    monkeypatch.setattr(reader_module, "RankTracker", ranks)
    monkeypatch.setattr(reader_module, "_CHECK_INTERVAL_SECONDS", 0.01)
    return clock


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> set[Request]:
    """The requests that have waited for other ranks."""
    waits: set[Request] = set()
    must_wait = SharedReader._must_wait

    def record(reader: SharedReader, stream: RankStream) -> bool:
        if is_waiting := must_wait(reader, stream):
            waits.update(stream.request for stream in reader._streams if stream.request)
        return is_waiting

    monkeypatch.setattr(SharedReader, "_must_wait", record)
    return waits


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`wait_until`: `eventually(condition, what)`."""
    return wait_until
