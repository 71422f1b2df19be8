"""The provider of the server's spans: OpenTelemetry's environment variables."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from infeed.shared.errors import ConfigError, MissingExtraError
from infeed_server.runtime.tracing import tracing


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "TRUE"},
    ],
)
def test_no_provider_unless_an_exporter_is_named(environment: dict[str, str]) -> None:
    with tracing(environment) as provider:
        assert provider is None


def test_exporter_is_found_by_its_name() -> None:
    with tracing({"OTEL_TRACES_EXPORTER": "console"}) as provider:
        assert provider is not None
        assert provider.resource.attributes["service.name"] == "infeed"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "zapkin"}, "OTEL_TRACES_EXPORTER=zapkin: no such exporter"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grcp"},
            r"OTEL_TRACES_EXPORTER=otlp: no such exporter is installed \(grcp\)",
        ),
    ],
)
def test_wrong_value_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message), tracing(environment):
        pass


def test_missing_sdk_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def fail(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry.sdk.trace.export"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    with (
        pytest.raises(MissingExtraError, match="pip install opentelemetry-sdk"),
        tracing({"OTEL_TRACES_EXPORTER": "console"}),
    ):
        pass
