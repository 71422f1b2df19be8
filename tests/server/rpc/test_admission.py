"""Limits in total and per client, and the names of clients."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from infeed_server.rpc import admission
from infeed_server.rpc.admission import Admission
from infeed_server.rpc.limits import Limits, client_name
from infeed_server.rpc.status import CallError
from infeed_server.serving.auth import Caller

METHODS = {
    "streams": "/x/StreamBatches",
    "calls": "/x/y",
    "health calls": "/grpc.health.v1.Health/x",
}


def call(kind: str, peer: str = "10.0.0.1:5", authorization: str | None = None) -> Any:
    return SimpleNamespace(
        method=METHODS[kind],
        peer=lambda: peer,
        client_certificate=None,
        authorization=authorization,
    )


@pytest.mark.parametrize(
    ("kind", "limits", "message"),
    [
        (
            "streams",
            {"max_streams": 2},
            "the server already has 2 open streams: close some, or raise --max-streams",
        ),
        (
            "calls",
            {"peer_calls": 2},
            "10.0.0.1 already has 2 open calls: close some, or raise --peer-calls",
        ),
        ("health calls", {}, "10.0.0.1 already has 2 open health calls: close some"),
    ],
)
def test_refusal_names_the_limit_and_its_option(
    monkeypatch: pytest.MonkeyPatch, kind: str, limits: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(admission, "_MAX_PEER_HEALTH_CALLS", 2)
    counts = Admission(Limits(**limits), None)
    with counts.admit(call(kind)):
        with counts.admit(call(kind)):
            with pytest.raises(CallError) as caught, counts.admit(call(kind)):
                pass
            assert str(caught.value) == message
        with counts.admit(call(kind)):
            assert counts.open_calls(kind) == 2
    assert not counts._open[kind], "clients without a call are forgotten"


def test_calls_behind_one_host_count_by_token() -> None:
    by_token: Any = SimpleNamespace(authenticate=Caller)
    counts = Admission(Limits(peer_calls=1), by_token)
    one, same, other = (call("calls", authorization=name) for name in ("a", "a", "b"))
    refused = pytest.raises(CallError, match="a already has 1 open calls")
    with counts.admit(one), counts.admit(other), refused, counts.admit(same):
        pass


def test_clients_of_a_unix_socket_have_only_the_total_limit() -> None:
    counts = Admission(Limits(max_streams=3, peer_streams=1), None)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(counts.admit(call("streams", "unix")))
        with pytest.raises(CallError, match="the server already has 3"):
            stack.enter_context(counts.admit(call("streams", "unix")))


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
