"""Tests of the options of `infeed serve` for TensorFlow's data service."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.data_service.options import ServiceOptions, service_options
from infeed_server.rpc.limits import Limits
from infeed_server.runtime.multiprocess import _shared_arguments, serve_processes
from infeed_server.runtime.options import ServerOptions


def test_options_that_are_not_given_have_defaults() -> None:
    assert service_options("local", workers=None, dispatcher=None) is None
    assert service_options("tf-data-service", workers=None, compression=None) == ServiceOptions()
    assert service_options("tf-data-service", workers=3, listen="127.0.0.1:9") == ServiceOptions(
        workers=3, listen="127.0.0.1:9"
    )


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("grain", {}, "--engine 'grain': it is local or tf-data-service"),
        ("local", {"workers": 2}, "--workers goes with --engine tf-data-service"),
        ("local", {"listen": "x"}, "--dispatcher-listen goes with --engine tf-data-service"),
        ("tf-data-service", {"compression": "zip"}, "one of none, snappy, auto"),
        (
            "tf-data-service",
            {"workers": 2, "dispatcher": "a:1"},
            "--workers is for a service that this server starts",
        ),
        (
            "tf-data-service",
            {"work_dir": "j", "dispatcher": "a:1"},
            "--work-dir is for a service that this server starts",
        ),
    ],
)
def test_contradicting_options_are_refused(
    engine: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        service_options(engine, **options)
    assert message in str(error.value)


def test_several_processes_with_a_data_service_are_refused() -> None:
    options = ServerOptions(service=ServiceOptions())
    with pytest.raises(ConfigError, match="leave out --processes"):
        serve_processes("x", options, 2, lambda _: True, lambda *_: None)


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
