"""Paces of hosts: a burst, then a rate, shared by all connections of a host."""

from __future__ import annotations

import pytest
from tests.harness.clock import ManualClock

from infeed_server.rpc import host_pace
from infeed_server.rpc.host_pace import BURST_SECONDS, FRAMES_PER_SECOND, HostPaces

BURST = BURST_SECONDS * FRAMES_PER_SECOND


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def paces(clock: ManualClock) -> HostPaces:
    return HostPaces(clock)


def test_host_waits_after_its_burst(paces: HostPaces, clock: ManualClock) -> None:
    assert paces.charge("a", BURST) == 0
    assert paces.charge("a", FRAMES_PER_SECOND) == pytest.approx(1)
    assert paces.charge("a", FRAMES_PER_SECOND) == pytest.approx(2)  # another connection
    assert paces.charge("b", BURST) == 0
    clock.now += 2
    assert paces.charge("a", FRAMES_PER_SECOND) == pytest.approx(1)
    assert paces.charge("a", 0) == 0


def test_host_that_rests_gets_its_burst_again(paces: HostPaces, clock: ManualClock) -> None:
    paces.charge("a", BURST)
    clock.now += BURST_SECONDS
    assert paces.charge("a", BURST) == 0
    clock.now += 1e6
    assert paces.charge("a", BURST + FRAMES_PER_SECOND) == pytest.approx(1)


def test_hosts_that_rest_are_forgotten(
    paces: HostPaces, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_pace, "_MIN_PURGE_SIZE", 10)
    for number in range(100):
        paces.charge(str(number), 1)
        clock.now += BURST_SECONDS / 5
    assert len(paces._paid_at) <= 11
    paces.charge("99", BURST)
    assert paces.charge("99", 1) > 0
