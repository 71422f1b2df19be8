"""Tests of the limits on registered data sets."""

from __future__ import annotations

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed_tfdata.gateway import registrations as module
from infeed_tfdata.gateway.registrations import Limits, Registrations

MIB = 1 << 20


def test_one_caller_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL", Limits(4, 100 * MIB))
    monkeypatch.setattr(module, "PER_CALLER", Limits(2, 50 * MIB))
    registrations = Registrations()
    for number in range(2):
        registrations.add(f"a{number}", "host a", MIB)
    with pytest.raises(InvalidRequestError, match=r"host a has registered 2 data sets .* 2 data"):
        registrations.add("a2", "host a", MIB)
    for dataset_id in ("b0", "a0", "b1"):  # the second is there
        registrations.add(dataset_id, "host b", MIB)
    with pytest.raises(InvalidRequestError, match="this server has registered 4 data sets"):
        registrations.add("c0", "host c", MIB)
    registrations.add("default", "", MIB)  # the gateway's own
    registrations.remove("default")
    assert "default" not in registrations


def test_bytes_are_limited_with_earlier_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL", Limits(100, 100 * MIB))
    monkeypatch.setattr(module, "PER_CALLER", Limits(100, 40 * MIB))
    registrations = Registrations(50 * MIB)
    registrations.add("a0", "host a", 30 * MIB)
    with pytest.raises(InvalidRequestError, match=r"host a has .* of 41 MiB together"):
        registrations.add("a1", "host a", 11 * MIB)
    registrations.add("a1", "host a", 10 * MIB)
    with pytest.raises(InvalidRequestError, match=r"this server has .* of 101 MiB .*and 100 MiB"):
        registrations.add("b0", "host b", 11 * MIB)
    registrations.add("b0", "host b", 10 * MIB)
