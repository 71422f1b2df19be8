"""Limits in total and per client, and the names of clients."""

from __future__ import annotations

import random

import pytest

from infeed_server.rpc.admission import OpenCalls
from infeed_server.rpc.limits import client_name
from infeed_server.rpc.status import CallError


def is_refused(calls: OpenCalls, client: str) -> bool:
    try:
        calls.add(client)
    except CallError:
        return True
    return False


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (
            OpenCalls("streams", 2, 9),
            "the server has 2 streams open already: close some, or raise --max-streams",
        ),
        (
            OpenCalls("calls", 9, 2),
            "10.0.0.1 has 2 calls open already: close some, or raise --peer-calls",
        ),
        (
            OpenCalls("health calls", 9, 2, options=False),
            "10.0.0.1 has 2 health calls open already: close some",
        ),
    ],
)
def test_refusal_names_the_limit_and_its_option(calls: OpenCalls, message: str) -> None:
    calls.add("10.0.0.1")
    calls.add("10.0.0.1")
    with pytest.raises(CallError) as caught:
        calls.add("10.0.0.1")
    assert str(caught.value) == message
    calls.remove("10.0.0.1")
    calls.add("10.0.0.2")


def test_clients_of_a_unix_socket_have_only_the_total_limit() -> None:
    calls = OpenCalls("streams", 3, 1)
    for _ in range(3):
        calls.add(client_name("unix"))
    assert is_refused(calls, client_name("unix"))
    calls.remove("")
    calls.add("")


def test_random_order_matches_a_model() -> None:
    calls, rng, model = OpenCalls("streams", 12, 5), random.Random(1), list[str]()
    for _ in range(5000):
        client = rng.choice("abcd")
        if rng.random() < 0.5:
            full = len(model) >= 12 or model.count(client) >= 5
            assert is_refused(calls, client) == full
            if not full:
                model.append(client)
        elif model:
            calls.remove(model.pop(rng.randrange(len(model))))
        assert len(calls) == len(model)
        assert set(calls._open) == set(model), "clients without a call are forgotten"


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:7", "2001:db8:1:2::/64"),
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
