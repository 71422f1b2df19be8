"""Counting what is open: in all, and of one host."""

from __future__ import annotations

import random

import pytest

from infeed_server.rpc.limits import Limit


def test_so_many_in_all() -> None:
    limit = Limit("streams", 2)
    assert limit.enter("a:1") is None
    assert limit.enter("a:2") is None
    assert limit.enter("b:1") == "the server has 2 streams open already"
    limit.leave("a:1")
    assert limit.enter("b:1") is None
    assert len(limit) == 2


def test_so_many_of_one_host() -> None:
    limit = Limit("calls", 9, 2)
    for port in (1, 2):
        assert limit.enter(f"10.0.0.1:{port}") is None
    assert limit.enter("10.0.0.1:3") == "10.0.0.1 has 2 calls open already"
    assert limit.enter("10.0.0.11:1") is None
    assert limit.enter("[::1]:1") is None
    limit.leave("10.0.0.1:2")  # whichever of its ports
    assert limit.enter("10.0.0.1:3") is None
    assert len(limit) == 4


def test_what_is_refused_is_not_counted() -> None:
    limit = Limit("streams", 1, 1)
    assert limit.enter("a:1") is None
    for _ in range(5):
        assert limit.enter("a:2") is not None
        assert limit.enter("b:2") is not None
    limit.leave("a:1")
    assert len(limit) == 0
    assert limit.enter("b:2") is None


@pytest.mark.parametrize("peers", [("[2001:db8::1]:1", "[2001:db8::1]:2"), ("h:1", "h:2")])
def test_hosts_are_told_from_ports(peers: tuple[str, str]) -> None:
    limit = Limit("streams", 9, 1)
    assert limit.enter(peers[0]) is None
    assert limit.enter(peers[1]) is not None


def test_unix_sockets_are_bounded_in_all_only() -> None:
    limit = Limit("streams", 3, 1)
    for _ in range(3):
        assert limit.enter("unix") is None
    assert limit.enter("unix") == "the server has 3 streams open already"
    limit.leave("unix")
    assert limit.enter("unix") is None


def test_hosts_that_left_are_forgotten() -> None:
    limit = Limit("streams", 1000, 4)
    for number in range(1000):
        assert limit.enter(f"10.0.{number}:1") is None
        limit.leave(f"10.0.{number}:1")
    assert not limit._open


def test_any_order() -> None:
    limit, rng, inside = Limit("streams", 12, 5), random.Random(1), list[str]()
    for _ in range(5000):
        peer = f"{rng.choice('abcd')}:{rng.randrange(9)}"
        if rng.random() < 0.5:
            full = len(inside) >= 12 or sum(one[0] == peer[0] for one in inside) >= 5
            assert (limit.enter(peer) is not None) == full
            if not full:
                inside.append(peer)
        elif inside:
            limit.leave(inside.pop(rng.randrange(len(inside))))
        assert len(limit) == len(inside)
