"""Limits in total and per host."""

from __future__ import annotations

import random

import pytest

from infeed_server.rpc.limits import ConcurrencyLimit


def test_total_limit() -> None:
    limit = ConcurrencyLimit("streams", 2)
    assert limit.acquire("a:1") is None
    assert limit.acquire("a:2") is None
    assert limit.acquire("b:1") == "the server has 2 streams open already"
    limit.release("a:1")
    assert limit.acquire("b:1") is None
    assert len(limit) == 2


def test_limit_per_host() -> None:
    limit = ConcurrencyLimit("calls", 9, 2)
    for port in (1, 2):
        assert limit.acquire(f"10.0.0.1:{port}") is None
    assert limit.acquire("10.0.0.1:3") == "10.0.0.1 has 2 calls open already"
    assert limit.acquire("10.0.0.11:1") is None
    assert limit.acquire("[::1]:1") is None
    limit.release("10.0.0.1:2")  # either port
    assert limit.acquire("10.0.0.1:3") is None
    assert len(limit) == 4


def test_refused_peers_are_not_counted() -> None:
    limit = ConcurrencyLimit("streams", 1, 1)
    assert limit.acquire("a:1") is None
    for _ in range(5):
        assert limit.acquire("a:2") is not None
        assert limit.acquire("b:2") is not None
    limit.release("a:1")
    assert len(limit) == 0
    assert limit.acquire("b:2") is None


@pytest.mark.parametrize("peers", [("[2001:db8::1]:1", "[2001:db8::1]:2"), ("h:1", "h:2")])
def test_host_is_separated_from_port(peers: tuple[str, str]) -> None:
    limit = ConcurrencyLimit("streams", 9, 1)
    assert limit.acquire(peers[0]) is None
    assert limit.acquire(peers[1]) is not None


def test_unix_sockets_have_only_the_total_limit() -> None:
    limit = ConcurrencyLimit("streams", 3, 1)
    for _ in range(3):
        assert limit.acquire("unix") is None
    assert limit.acquire("unix") == "the server has 3 streams open already"
    limit.release("unix")
    assert limit.acquire("unix") is None


def test_hosts_without_open_items_are_forgotten() -> None:
    limit = ConcurrencyLimit("streams", 1000, 4)
    for number in range(1000):
        assert limit.acquire(f"10.0.{number}:1") is None
        limit.release(f"10.0.{number}:1")
    assert not limit._open


def test_random_order_matches_a_model() -> None:
    limit, rng, model = ConcurrencyLimit("streams", 12, 5), random.Random(1), list[str]()
    for _ in range(5000):
        peer = f"{rng.choice('abcd')}:{rng.randrange(9)}"
        if rng.random() < 0.5:
            full = len(model) >= 12 or sum(other[0] == peer[0] for other in model) >= 5
            assert (limit.acquire(peer) is not None) == full
            if not full:
                model.append(peer)
        elif model:
            limit.release(model.pop(rng.randrange(len(model))))
        assert len(limit) == len(model)
