"""Imports of the gRPC layer: which of its modules know HTTP/2, and which know access rights."""

from __future__ import annotations

import pytest
from tests.test_layers import MODULES, imports

ON_HTTP2 = {"admission", "call", "router", "server"}
"""The modules that use `http2`; the others know messages only."""


def importing(prefix: str) -> set[str]:
    """Returns the modules of the server's `rpc` that import something with this prefix."""
    return {
        name.rpartition(".")[2]
        for name, path in MODULES.items()
        if name.startswith("infeed_server.rpc.")
        and any(f"{each}.".startswith(f"{prefix}.") for each in imports(path))
    }


def test_modules_that_import_http2() -> None:
    assert importing("infeed_server.http2") == ON_HTTP2


@pytest.mark.parametrize("library", ["h2", "hpack", "hyperframe"])
def test_no_module_imports_the_http2_library(library: str) -> None:
    assert importing(library) == set()


def test_calls_know_no_access_rights() -> None:
    assert "call" not in importing("infeed_server.serving")
