"""Limits in total and per client, and the names of clients."""

from __future__ import annotations

import random

import pytest

from infeed_server.rpc.limits import ConcurrencyLimit, LimitReachedError, client_name


def is_refused(limit: ConcurrencyLimit, client: str) -> bool:
    try:
        limit.acquire(client)
    except LimitReachedError:
        return True
    return False


def test_total_limit() -> None:
    limit = ConcurrencyLimit("streams", 2, 9)
    limit.acquire("a")
    limit.acquire("a")
    with pytest.raises(LimitReachedError) as caught:
        limit.acquire("b")
    assert str(caught.value) == (
        "the server has 2 streams open already: close some, or raise --max-streams"
    )
    assert caught.value.client is None
    limit.release("a")
    limit.acquire("b")
    assert len(limit) == 2


def test_limit_per_client() -> None:
    limit = ConcurrencyLimit("health calls", 9, 2)
    limit.acquire("10.0.0.1")
    limit.acquire("10.0.0.1")
    with pytest.raises(LimitReachedError) as caught:
        limit.acquire("10.0.0.1")
    assert str(caught.value) == ("10.0.0.1 has 2 health calls open already: close some")
    assert (caught.value.kind, caught.value.client) == ("health calls", "10.0.0.1")
    limit.acquire("10.0.0.11")
    limit.release("10.0.0.1")
    limit.acquire("10.0.0.1")
    assert len(limit) == 3


def test_refused_clients_are_not_counted() -> None:
    limit = ConcurrencyLimit("streams", 1, 1)
    limit.acquire("a")
    for _ in range(5):
        assert is_refused(limit, "a")
        assert is_refused(limit, "b")
    limit.release("a")
    assert len(limit) == 0
    limit.acquire("b")


def test_clients_of_a_unix_socket_have_only_the_total_limit() -> None:
    limit = ConcurrencyLimit("streams", 3, 1)
    for _ in range(3):
        limit.acquire(client_name("unix"))
    assert is_refused(limit, client_name("unix"))
    limit.release("")
    limit.acquire("")


def test_clients_without_open_items_are_forgotten() -> None:
    limit = ConcurrencyLimit("streams", 1000, 4)
    for number in range(1000):
        limit.acquire(f"10.0.{number}")
        limit.release(f"10.0.{number}")
    assert not limit._open


def test_random_order_matches_a_model() -> None:
    limit, rng, model = ConcurrencyLimit("streams", 12, 5), random.Random(1), list[str]()
    for _ in range(5000):
        client = rng.choice("abcd")
        if rng.random() < 0.5:
            full = len(model) >= 12 or model.count(client) >= 5
            assert is_refused(limit, client) == full
            if not full:
                model.append(client)
        elif model:
            limit.release(model.pop(rng.randrange(len(model))))
        assert len(limit) == len(model)


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:7", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:8", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::9]:8", "2001:db8:1:3::/64"),
        ("[::ffff:10.0.0.1]:9", "10.0.0.1"),
        ("[fe80::1%eth0]:9", "fe80::/64"),
        ("unix", ""),
    ],
)
def test_clients_are_counted_by_host(peer: str, name: str) -> None:
    assert client_name(peer) == name


def test_certificate_comes_before_the_host() -> None:
    one, two = (client_name(f"10.0.0.{end}:5", b"one") for end in (1, 2))
    assert one == two != client_name("10.0.0.1:5", b"two")
    assert one.startswith("the certificate ")
