"""Tests of `data_service/gateway/registrations.py`."""

from __future__ import annotations

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed_server.data_service.gateway.registrations import Limits, Registrations

MIB = 1 << 20


def register(registrations: Registrations, dataset_id: str, caller: str, mib: int = 1) -> None:
    registrations.require_room(dataset_id, caller, mib * MIB)
    registrations.add(dataset_id, caller, mib * MIB)


def test_one_caller_leaves_room_for_others() -> None:
    registrations = Registrations(0, total=Limits(4, 100 * MIB), per_caller=Limits(2, 50 * MIB))
    for number in range(2):
        register(registrations, f"a{number}", "host a")
    with pytest.raises(InvalidRequestError, match=r"host a has registered 2 data sets .* 2 data"):
        register(registrations, "a2", "host a")
    register(registrations, "a0", "host a")  # it is there
    register(registrations, "b0", "host b")
    register(registrations, "a0", "host b")
    register(registrations, "b1", "host b")
    with pytest.raises(InvalidRequestError, match="this server has registered 4 data sets"):
        register(registrations, "c0", "host c")
    register(registrations, "default", "")  # the gateway's own


def test_bytes_are_limited_with_those_of_earlier_gateways() -> None:
    limits = {"total": Limits(100, 100 * MIB), "per_caller": Limits(100, 40 * MIB)}
    registrations = Registrations(50 * MIB, **limits)
    register(registrations, "a0", "host a", 30)
    with pytest.raises(InvalidRequestError, match=r"host a has .* of 30 MiB .* another of 11 MiB"):
        register(registrations, "a1", "host a", 11)
    register(registrations, "a1", "host a", 10)
    with pytest.raises(InvalidRequestError, match=r"this server has .* of 90 MiB .*and 100 MiB"):
        register(registrations, "b0", "host b", 11)
    register(registrations, "b0", "host b", 10)
