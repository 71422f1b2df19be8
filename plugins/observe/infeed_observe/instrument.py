"""The instrument of a server: metrics, status and previews over HTTP."""

from __future__ import annotations

import sys

import tensorflow as tf
from typing_extensions import override

from infeed.shared.report import ServerReport, TrainerReport
from infeed.v1 import stream_pb2
from infeed_observe.http.app import ControlState
from infeed_observe.http.server import open_control_plane
from infeed_observe.metrics import Metrics
from infeed_observe.observer import Observer
from infeed_observe.preview import Previews
from infeed_observe.server_metrics import expose_server
from infeed_server.config.address import Address
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.runtime.instruments import Facts
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.instrument import ConnectedTrainer, Instrument, StreamTracer
from infeed_server.version import VERSION

_UPDATE_INTERVAL_SECONDS = 1.0
"""Seconds: with more, figures are older; with fewer, they cost more."""


class ServerInstrument(Instrument):
    """Observes a server and shows it at `--http`, starting before its sources open."""

    def __init__(self, facts: Facts) -> None:
        """Raises `ConfigError` if the address cannot be used."""
        options = facts.options
        self.monitor = metrics = Metrics(version=VERSION, tensorflow=tf.__version__)
        self.observer = Observer(facts, metrics)
        expose_server(self.observer)
        self._updates = PeriodicTask("observer", _UPDATE_INTERVAL_SECONDS, self.observer.update)
        previews = Previews(facts.engines) if shows_samples(options) else None
        state = ControlState(
            facts.health, metrics.registry, VERSION, status=self.observer, previews=previews
        )
        self._control = control = open_control_plane(state, options)
        if control:
            control.start()
            self.address = control.address
            if not options.parent_token:
                self.url = f"{'https' if options.http_tls else 'http'}://{control.address}"

    @override
    def start(self) -> None:
        self.observer.update()  # rates of the first second need it
        self._updates.start()

    @override
    def stop(self) -> None:
        self._updates.stop()
        if self._control:
            self._control.stop()

    @override
    def connect(self, trainer: ConnectedTrainer) -> None:
        self.observer.jobs.connect(trainer)

    @override
    def trace(self, opening: stream_pb2.StreamOpen, peer: str, /) -> StreamTracer:
        """Traces if `opentelemetry-instrument` or the user has set a provider; otherwise imports
        nothing."""
        if sdk := sys.modules.get("opentelemetry.sdk.trace"):
            from opentelemetry.trace import get_tracer_provider  # noqa: PLC0415 - an extra

            from infeed_observe.request_tracer import RequestTracer  # noqa: PLC0415

            if isinstance(provider := get_tracer_provider(), sdk.TracerProvider):
                return RequestTracer(provider, opening, peer)
        return StreamTracer()

    @override
    def disconnect(self, trainer: ConnectedTrainer) -> None:
        self.observer.jobs.disconnect(trainer)

    @override
    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport | None:
        return self.observer.jobs.on_report(trainer, report)


def shows_samples(options: ServerOptions) -> bool:
    """Returns whether previews may show samples, which is only safe if every HTTP client may read
    all of them: with HTTP tokens, or on a loopback address if gRPC needs no authentication."""
    if options.http in (None, "off") or options.parent_token:
        return False
    if options.http_tokens:
        return True
    if options.tokens or options.tls_client_ca:
        return False
    return Address.parse(options.http or "", "--http").is_loopback
