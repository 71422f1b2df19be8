"""Provider of the server's spans, from OpenTelemetry's standard environment variables.

`OTEL_TRACES_EXPORTER` names an exporter and turns traces on; without it nothing is imported. The
SDK reads the others itself: the exporter's endpoint, the sampler, the resource.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from opentelemetry import trace as api

_EXPORTER = "OTEL_TRACES_EXPORTER"

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Exporters of `otlp` by protocol; without a protocol, the first that is installed."""

_FLUSH_TIMEOUT_SECONDS = 2.0
"""Wait for the last spans at shutdown: a collector that does not answer must not delay it, so they
may be lost."""


@contextmanager
def tracing(environment: Mapping[str, str] = os.environ) -> Iterator[api.TracerProvider | None]:
    """Yields the provider that the program has set, else a new one if the environment names an
    exporter, else None; sends the last spans at the end of the block.

    Raises `ConfigError` and `MissingExtraError`.
    """
    provider = _open_provider(environment)
    try:
        yield provider
    finally:
        if shutdown := getattr(provider, "shutdown", None):
            thread = threading.Thread(target=shutdown, name="infeed-traces", daemon=True)
            thread.start()
            thread.join(_FLUSH_TIMEOUT_SECONDS)


def _open_provider(environment: Mapping[str, str]) -> api.TracerProvider | None:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry import trace  # noqa: PLC0415 - loaded already
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        # Set by `opentelemetry-instrument`, or by a module of the user.
        provider = trace.get_tracer_provider()
        if isinstance(provider, TracerProvider):
            return provider
    names = [name.strip() for name in environment.get(_EXPORTER, "").split(",")]
    names = [name for name in names if name not in ("", "none")]
    return _new_provider(names, environment) if names else None


def _new_provider(names: list[str], environment: Mapping[str, str]) -> api.TracerProvider:
    """Returns a provider that sends spans to the exporters, in batches on a thread of its own."""
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            f"{_EXPORTER}={','.join(names)}: traces need OpenTelemetry's SDK: "
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        ) from None
    exporters = [_load_exporter(name, environment) for name in names]
    attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    is_named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in attributes
    resource = Resource.create({} if is_named else {"service.name": "infeed"})
    # Ended by the server's own shutdown, which comes before the interpreter's.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _load_exporter(name: str, environment: Mapping[str, str]) -> Any:
    group = entry_points(group="opentelemetry_traces_exporter")
    found = {entry.name: entry for entry in group}
    candidates = [name]
    if name == "otlp":
        protocol = next((environment[key] for key in _PROTOCOLS if environment.get(key)), None)
        candidates = list(_OTLP.values()) if protocol is None else [_OTLP.get(protocol, protocol)]
    for candidate in candidates:
        if candidate in found:
            return found[candidate].load()()
    raise ConfigError(
        f"{_EXPORTER}={name}: no such exporter is installed ({' or '.join(candidates)}); there is: "
        f"{', '.join(sorted(found)) or 'none'}; pip install opentelemetry-exporter-"
        f"{candidates[0].replace('_', '-')}, or name another"
    )
