"""Tests of the options of a server."""

from __future__ import annotations

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.rpc.limits import Limits
from infeed_server.runtime.multiprocess import _shared_arguments
from infeed_server.runtime.options import ServerOptions


def test_limits_are_those_of_the_options() -> None:
    assert ServerOptions().limits() == Limits()
    values = {name: 100 + number for number, name in enumerate(vars(Limits()))}
    options = {
        name if name.startswith("peer_") else f"max_{name}": value for name, value in values.items()
    }
    limits = ServerOptions(**options).limits()  # type: ignore[arg-type]
    assert limits == Limits(**values)
    arguments = _shared_arguments(ServerOptions(**options, max_connection_age=5), 2)  # type: ignore[arg-type]
    for name, value in {**options, "max_connection_age": 5}.items():
        option = "--" + name.replace("_", "-")
        assert arguments[arguments.index(option) + 1] == str(value)


def test_tls_of_http_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="--http-tls: TLS needs the server's certificate too"):
        ServerOptions(http_tls=True).control_access()


def test_previews_need_loopback_without_tokens_or_tokens_for_http() -> None:
    assert ServerOptions().has_previews
    assert not ServerOptions(tokens="t.yaml").has_previews
    assert not ServerOptions(http="0.0.0.0:7471").has_previews
    assert ServerOptions(http="0.0.0.0:7471", tokens="t.yaml", http_tokens="h.yaml").has_previews
    assert not ServerOptions(http="off", http_tokens="h.yaml").has_previews
