"""A whole server: engines, gRPC, control plane. Reads as its life: open, warm, serve, stop."""

from __future__ import annotations

import logging
from collections.abc import Callable

import tensorflow as tf

from infeed.errors import ConfigError, InfeedError, SampleError
from infeed_server.config.address import Address, require_safe
from infeed_server.control.app import ControlState, create_app
from infeed_server.control.health import WHOLE_SERVER, Health, Readiness
from infeed_server.control.metrics import Metrics
from infeed_server.control.server import ControlServer
from infeed_server.engines.base import Engine
from infeed_server.engines.budget import Budget, default_limit
from infeed_server.engines.build import build
from infeed_server.pipeline.load import Pipelines, located
from infeed_server.rpc.server import RpcServer
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.service import service_of
from infeed_server.service.catalog import Catalog
from infeed_server.service.tokens import TokenAccess
from infeed_server.sources import Progress
from infeed_server.version import VERSION

log = logging.getLogger(__name__)

NamedProgress = Callable[[str], Progress]
"""Pipeline name → what is told of the bytes of its index."""


class Server:
    """Serves pipelines in this process. Also a context manager: serves inside, stops at the end."""

    def __init__(
        self,
        pipelines: Pipelines,
        options: ServerOptions | None = None,
        progress: NamedProgress | None = None,
    ) -> None:
        """Opens every source and listens. The control plane answers already, gRPC does not.

        Raises `ConfigError`, `SourceError` or `UserCodeError`.
        """
        options = options or ServerOptions()
        listen = Address.parse(options.listen)
        require_safe(
            listen, "--listen", encrypted=options.tls is not None, insecure=options.insecure
        )
        self._grace = options.grace
        self._shares_port = options.share_port
        tls = options.tls.watched() if options.tls else None
        access = TokenAccess(options.tokens) if options.tokens else None
        self.health = Health()
        self.metrics = Metrics(version=VERSION, tensorflow=tf.__version__)
        # Addresses first: they are refused at once, where a source may take minutes to open.
        if not options.share_port:
            listen.require_free()
        self._control = self._control_server(options)
        self._engines: dict[str, Engine] = {}
        self._service = service_of(options)
        self._before: dict[str, Readiness] = {}
        """What held for each pipeline before its data service was not there."""
        try:
            if self._control:
                self._control.start()
            if self._service:
                self._service.start()
                self.metrics.watch_service(self._service)
            self._open(pipelines, Budget(options.memory_limit or default_limit()), progress)
            catalog = Catalog(self._engines)
            self._rpc = RpcServer(
                catalog,
                self.metrics,
                str(listen),
                share_port=options.share_port,
                tls=tls,
                access=access,
                peer_streams=options.peer_streams,
            )
        except BaseException:
            self._close_engines()
            if self._service:
                self._service.stop()
            if self._control:
                self._control.stop()
            raise
        self.address = Address(listen.host, self._rpc.port)
        self.health.subscribe(self._tell_rpc)

    def start(self) -> None:
        """Answers calls from now on; returns when each pipeline has tried its first batch."""
        self._rpc.start()
        for name, engine in self._engines.items():
            self._warm(name, engine)
        if self._service:
            self._service.watch(self._tell_pipelines)

    def stop(self, grace: float | None = None) -> None:
        """Turns readiness off, ends streams within `grace` seconds, frees everything.

        `grace` None: what the options say.
        """
        self.health.drain()
        self._rpc.stop(self._grace if grace is None else grace)
        self._close_engines()
        if self._service:
            self._service.stop()
        if self._control:
            self._control.stop()

    @property
    def http_address(self) -> str | None:
        return self._control.address if self._control else None

    def specs(self) -> list[str]:
        """The pipelines, a line each, for people."""
        return [
            f"{engine.spec.name}: {', '.join(map(str, engine.spec.element_spec))}; "
            f"batch {engine.spec.batch_size}; {engine.spec.sample_count or 'unknown'} samples; "
            f"{engine.spec.guarantee}; {engine.spec.engine.replace('_', '-')} engine"
            for engine in self._engines.values()
        ]

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:  # a signal, for one
            self.stop(0)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _control_server(self, options: ServerOptions) -> ControlServer | None:
        if options.http is None:
            return None
        http = Address.parse(options.http)
        if http.is_unix:
            raise ConfigError(f"--http {http}: HTTP needs host:port", address=str(http))
        require_safe(http, "--http", encrypted=False, insecure=options.insecure)
        state = ControlState(self.health, self.metrics, VERSION)
        return ControlServer(create_app(state), http.host, http.port)

    def _open(self, pipelines: Pipelines, budget: Budget, progress: NamedProgress | None) -> None:
        self.metrics.set_limit(budget.limit)
        for name, definition in pipelines.items():
            self.health.set(name, ready=False, reason="opening its source")
            self.metrics.add_pipeline(name)
            bar = progress(name) if progress else None
            with located(pipelines, name):
                service = self._service.service if self._service else None
                engine = build(name, definition, self.metrics, bar, budget, service)
                self._engines[name] = engine
                if self._shares_port:
                    _require_shareable(engine)
            self.metrics.watch(name, engine)
            self.health.set(name, ready=False, reason="making its first batch")

    def _warm(self, name: str, engine: Engine) -> None:
        """A pipeline that fails is served all the same, so that its trainers learn why.

        One bad sample makes other batches no worse; a user's function that raises does.
        """
        try:
            engine.warm()
        except SampleError as error:
            log.error("pipeline %r: its first batch fails: %s", name, error)
            self.health.set(name, ready=True, reason="served, but its first batch fails")
        except InfeedError as error:
            log.error("pipeline %r: its first batch fails: %s", name, error)
            self.health.set(name, ready=False, reason=f"its first batch fails: {error}")
        else:
            self.health.set(name, ready=True, reason="its first batch is made")

    def _tell_pipelines(self, problem: str | None) -> None:
        """What the data service lacks, all pipelines lack."""
        if problem:
            self._before = self._before or dict(self.health.parts)
            for name in self._engines:
                self.health.set(name, ready=False, reason=problem)
        else:
            for name, readiness in self._before.items():
                self.health.set(name, readiness.ready, readiness.reason)
            self._before = {}

    def _tell_rpc(self, name: str, readiness: Readiness) -> None:
        if name == WHOLE_SERVER:
            self._rpc.set_serving(readiness.ready)

    def _close_engines(self) -> None:
        for engine in self._engines.values():
            engine.close()


def _require_shareable(engine: Engine) -> None:
    """Raises `ConfigError` for a dataset whose ranks have to meet: the kernel would send each to
    another process."""
    if engine.spec.guarantee.resume == "none":
        raise ConfigError(
            "source.dataset: it has no order, so all ranks have to share one reading of it, which "
            "several processes do not have; leave out --processes, or make it deterministic"
        )
