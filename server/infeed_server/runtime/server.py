"""A server in one process: engines, gRPC and control plane."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError, SourceError
from infeed.shared.spec import PipelineSpec
from infeed_server.config.address import Address
from infeed_server.control.app import ControlState
from infeed_server.control.health import Health, Readiness
from infeed_server.control.http_server import open_control_server
from infeed_server.control.metrics import Metrics
from infeed_server.control.peers import parse_peers
from infeed_server.engines.base import Engine, mean_string_bytes
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.engines.monitor import Monitors, fault_of
from infeed_server.observe.figures import Figures
from infeed_server.observe.observer import UPDATE_INTERVAL_SECONDS, Observer
from infeed_server.observe.preview import Previews
from infeed_server.pipeline.load import Pipelines, located
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.rpc.server import RpcServer
from infeed_server.runtime.engine_factory import build
from infeed_server.runtime.engines import RemoteEngine
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import TokenAuthenticator
from infeed_server.serving.catalog import Catalog
from infeed_server.sources import ProgressCallback
from infeed_server.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from infeed_server.rpc.request_tracer import RequestTracer

_WARM_UP_INTERVAL_SECONDS = 10.0
"""Between attempts to make the first batch of a pipeline whose storage had a fault."""

NamedProgress = Callable[[str], ProgressCallback]
"""Pipeline name → callback for the progress of its index, in bytes."""


class Server:
    """Serves pipelines in this process. A context manager that starts and stops it."""

    def __init__(
        self,
        pipelines: Pipelines,
        options: ServerOptions | None = None,
        progress: NamedProgress | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        """Opens every source and binds the port. The control plane answers, gRPC does not yet.

        `tracer_provider` is OpenTelemetry's for the spans of batches; None: there are none.
        Raises `ConfigError`, `SourceError` or `UserCodeError`.
        """
        options = options or ServerOptions()
        listen = options.listen_address()
        self._grace = options.grace
        self._shares_port = options.share_port
        credentials = options.tls.credentials() if options.tls else None
        authenticator = TokenAuthenticator(options.tokens) if options.tokens else None
        self.health = Health(options.readiness)
        self.metrics = Metrics(version=VERSION, tensorflow=tf.__version__)
        self.metrics.serving.watch_health(self.health)
        if options.tls:
            self.metrics.serving.watch_certificate(options.tls.expires_at)
        # Addresses first: an unusable one is an error at once, but opening a source takes minutes.
        if not options.share_port:
            listen.require_free()
        self._remote: RemoteEngine | None = None
        if options.engine:
            self._remote = options.engine(options.insecure)
        self._engines: dict[str, Engine] = {}
        self.observer = Observer(VERSION)
        self._monitor = Monitors(self.metrics, self.observer.totals)
        self.metrics.watch_trainers(Figures(self.observer))
        self._updates = PeriodicTask("observer", UPDATE_INTERVAL_SECONDS, self._update)
        state = ControlState(
            self.health,
            self.metrics.registry,
            VERSION,
            observer=self.observer,
            previews=Previews(self._engines) if options.has_previews else None,
            peers=parse_peers(options.http_peers),
        )
        self._control = open_control_server(state, options.control_access())
        self._string_bytes: dict[str, int] = {}
        """Bytes of the byte strings of a sample, by pipeline: the mean of the first batch."""
        self._readiness_before: dict[str, Readiness] = {}
        """Readiness of each pipeline before the remote engine failed; empty while it works."""
        self._cold: set[str] = set()
        """Pipelines whose first batch failed with a fault that can pass."""
        self._with_bad_data: set[str] = set()
        """Pipelines that stay unready until a restart."""
        if options.unready_on_bad_data:
            self.observer.totals.source_errors.subscribe(self._on_source_error)
        self._warm_ups = PeriodicTask("warm-up", _WARM_UP_INTERVAL_SECONDS, self.warm_cold)
        try:
            if self._control:
                self._control.start()
            if self._remote:
                self._remote.start(self.metrics.registry)
            self._open(pipelines, MemoryBudget(options.memory_limit or default_limit()), progress)
            catalog = Catalog(self._engines, self._string_bytes)
            self._rpc = RpcServer(
                catalog,
                self._monitor,
                listen,
                share_port=options.share_port,
                credentials=credentials,
                authenticator=authenticator,
                limits=options.limits(),
                connection_age=options.max_connection_age,
                connection_age_grace=options.max_connection_age_grace,
                jobs=self.observer.jobs,
                tracer=None if tracer_provider is None else _request_tracer(tracer_provider),
            )
        except BaseException:
            self._close()
            raise
        self.address = Address(listen.host, self._rpc.port)
        self.health.subscribe(
            lambda name, state: self._rpc.set_serving(state.ready, state.reason, name)
        )

    def start(self) -> None:
        """Starts gRPC; returns when each pipeline has tried its first batch."""
        self._rpc.start()
        self._updates.start()
        for name, engine in self._engines.items():
            self._warm(name, engine)
        if self._cold:
            self._warm_ups.start()
        if self._remote:
            self._remote.watch(self._on_remote_status)

    def warm_cold(self) -> None:
        """Tries the first batch of each pipeline again that had a fault of storage."""
        for name in sorted(self._cold):
            self._warm(name, self._engines[name])

    def stop(self, grace: float | None = None) -> None:
        """Turns readiness off, ends streams within `grace` seconds, and frees all resources.

        `grace` None: that of the options.
        """
        self.health.drain()
        self._rpc.stop(self._grace if grace is None else grace)
        self._close()

    @property
    def http_address(self) -> str | None:
        return self._control.address if self._control else None

    @property
    def pipeline_specs(self) -> list[PipelineSpec]:
        return [engine.spec for engine in self._engines.values()]

    def specs(self) -> list[str]:
        """Returns a readable line for each pipeline."""
        return [
            f"{spec.name}: {', '.join(map(str, spec.element_spec))}; "
            f"batch {spec.batch_size}; {spec.sample_count or 'unknown'} samples; "
            f"{spec.guarantee}; {spec.engine.replace('_', '-')} engine"
            for spec in self.pipeline_specs
        ]

    def __repr__(self) -> str:
        ready = "ready" if self.health.overall.ready else "not ready"
        return f"Server({', '.join(self._engines)} at {self.address}, {ready})"

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:  # also a signal
            self.stop(0)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _update(self) -> None:
        self.observer.update()
        self.metrics.update()

    def _open(
        self, pipelines: Pipelines, budget: MemoryBudget, progress: NamedProgress | None
    ) -> None:
        self.metrics.set_limit(budget.limit)
        for name, definition in pipelines.items():
            self.health.set(name, ready=False, reason="opening its source")
            self.metrics.add_pipeline(name)
            on_progress = progress(name) if progress else None
            with located(pipelines, name):
                if self._remote:
                    engine = self._remote.build(name, definition, budget, on_progress)
                else:
                    engine = build(name, definition, self._monitor, on_progress, budget)
                self._engines[name] = engine
                if self._shares_port:
                    _require_shareable(engine)
            self.metrics.watch(name, engine)
            self.observer.watch(name, engine)
            self.health.set(name, ready=False, reason="making its first batch")

    def _warm(self, name: str, engine: Engine) -> None:
        """Makes the first batch, and sets the pipeline's readiness.

        A failing pipeline is served nevertheless, so that its trainers get the error, and can read
        the batches that do not fail. A fault of storage can pass, so its batch is tried again;
        reading up to it must cost little.
        """
        self._cold.discard(name)
        try:
            self._string_bytes[name] = mean_string_bytes(engine.warm_up())
        except InfeedError as error:
            reason = f"its first batch fails: {error}"
            self.health.set(name, ready=False, reason=reason, level=logging.ERROR)
            is_quick = engine.spec.guarantee.resume == "constant_time"
            if is_quick and isinstance(error, SourceError):
                self._cold.add(name)
        else:
            if name not in self._with_bad_data:
                self.health.set(name, ready=True, reason="its first batch is made")

    def _on_source_error(self, name: str, error: SourceError) -> None:
        """Makes a pipeline unready whose data stays as it is until the server is restarted."""
        if fault_of(error) != "storage" and name not in self._with_bad_data:
            self._with_bad_data.add(name)
            self.health.set(name, ready=False, reason=error.message, level=logging.ERROR)

    def _on_remote_status(self, problem: str | None) -> None:
        """Makes all pipelines unready while the remote engine has a problem."""
        if problem:
            self._readiness_before = self._readiness_before or dict(self.health.parts)
            for name in self._engines:
                self.health.set(name, ready=False, reason=problem)
        else:
            for name, readiness in self._readiness_before.items():
                self.health.set(name, readiness.ready, readiness.reason)
            self._readiness_before = {}

    def _close(self) -> None:
        self._warm_ups.stop()
        self._updates.stop()
        for engine in self._engines.values():
            engine.close()
        if self._remote:
            self._remote.stop()
        if self._control:
            self._control.stop()


def _request_tracer(provider: TracerProvider) -> RequestTracer:
    from infeed_server.rpc.request_tracer import RequestTracer  # noqa: PLC0415 - an extra

    return RequestTracer(provider)


def _require_shareable(engine: Engine) -> None:
    """Raises `ConfigError` for a dataset whose ranks must use one process: the kernel would connect
    each to another one."""
    if engine.spec.guarantee.resume == "none":
        raise ConfigError(
            "source.dataset: it has no order, so all ranks must share one reading of it, which "
            "several processes cannot; leave out --processes, or make it deterministic"
        )
