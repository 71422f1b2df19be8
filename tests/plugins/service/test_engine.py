"""Tests of the engine's options and of the door through which a server opens it."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.runtime.engines import configure_engine, engine_options
from infeed_server.runtime.multiprocess import serve_processes
from infeed_server.runtime.options import ServerOptions
from infeed_service.engine import open_service
from infeed_service.gateway.service import EmbeddedDataService, ExternalDataService
from infeed_service.options import ServiceOptions


def configure(name: str, **given: Any) -> Any:
    return configure_engine(engine_options()(engine=name, **given))


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("grain", {}, "--engine 'grain': unknown engine; use local or tf-"),
        ("local", {"workers": 2}, "--workers needs --engine tf-data-service"),
        ("local", {"dispatcher_listen": "x"}, "--dispatcher-listen needs --engine tf-data"),
        ("tf-data-service", {"compression": "zip"}, "one of none, snappy, auto"),
        (
            "tf-data-service",
            {"workers": 2, "dispatcher": "a:1"},
            "--workers has no effect with --dispatcher",
        ),
        (
            "tf-data-service",
            {"work_dir": "j", "dispatcher": "a:1"},
            "--work-dir has no effect with --dispatcher",
        ),
    ],
)
def test_contradicting_options_are_refused(
    engine: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        configure(engine, **options)
    assert message in str(error.value)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave out --processes"):
        serve_processes(
            "x",
            ServerOptions(engine=configure("tf-data-service"), processes=2),
            ShutdownSignal(),
            pytest.fail,
        )


def test_options_select_the_service() -> None:
    external = open_service(ServiceOptions(dispatcher="127.0.0.1:1"), False)
    assert isinstance(external, ExternalDataService)
    assert isinstance(open_service(ServiceOptions(), False), EmbeddedDataService)
