"""Imports of the gRPC layer: which of its modules know access rights."""

from __future__ import annotations

from tests.test_layers import MODULES, imports


def test_calls_know_no_access_rights() -> None:
    imported = imports(MODULES["infeed_server.rpc.call"])
    assert not [name for name in imported if name.startswith("infeed_server.serving")]
