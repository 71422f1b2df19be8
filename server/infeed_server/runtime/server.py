"""A server in one process: engines, gRPC and the instrument."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.config.address import Address
from infeed_server.engines.base import Engine
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.followed_classes import warn_of_other_classes
from infeed_server.pipeline.load import FilePipelines, Pipelines, located
from infeed_server.rpc.server import RpcServer
from infeed_server.rpc.servicer import added_methods
from infeed_server.runtime.certificate import tls_files
from infeed_server.runtime.engine_factory import build
from infeed_server.runtime.engines import RemoteEngine
from infeed_server.runtime.instruments import Facts, open_instrument
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.warm_up import WarmUp
from infeed_server.serving.auth import TokenAuthenticator
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.health import Health
from infeed_server.serving.instrument import Instrument
from infeed_server.serving.refused import RefusedBatches
from infeed_server.sources.base import ProgressCallback

_log = logging.getLogger(__name__)

NamedProgress = Callable[[str], ProgressCallback]
"""Pipeline name → callback for the progress of its index, in bytes."""


class Server:
    """Serves pipelines in this process. A context manager that starts and stops it."""

    def __init__(
        self,
        pipelines: Pipelines,
        options: ServerOptions | None = None,
        progress: NamedProgress | None = None,
    ) -> None:
        """Opens every source and binds the port. The instrument already shows the server; gRPC does
        not answer yet. Raises `ConfigError`, `SourceError` or `UserCodeError`."""
        self._options = options = options or ServerOptions()
        self._tls = tls_files(options)
        self.health = Health(options.readiness.value)
        self._engines: dict[str, Engine] = {}
        self._budget = MemoryBudget(unsent_limit(options))
        self._refused = RefusedBatches()
        self._warm_up = WarmUp(self.health, self._engines, self._refused.last)
        self._remote: RemoteEngine | None = None
        self._rpc: RpcServer | None = None
        self._closing = ExitStack()
        """What `close` undoes, in reverse order."""
        try:
            self.instrument = self._open_instrument()
            self._open_pipelines(pipelines, progress)
            self.address = self._open_rpc()
        except BaseException:  # also a signal
            self.close()
            raise

    def start(self) -> None:
        """Starts gRPC; returns when each pipeline has tried its first batch."""
        assert self._rpc is not None
        self.instrument.start()
        self._rpc.start()
        self._closing.callback(self._warm_up.stop)
        self._warm_up.start()
        if self._remote:
            self._remote.watch(self._warm_up.on_remote_status)

    def stop(self, grace: float | None = None) -> None:
        """Drains the server within `grace` seconds, by default those of the options, and closes
        it."""
        self.drain(self._options.grace if grace is None else grace)
        self.close()

    def drain(self, grace: float) -> None:
        """Turns readiness off, and ends streams within `grace` seconds."""
        self.health.drain()
        if self._rpc is not None:
            self._rpc.stop(grace)

    def close(self) -> None:
        """Frees all resources."""
        self._closing.close()

    @property
    def http_address(self) -> str | None:
        return self.instrument.address

    def specs(self) -> list[str]:
        """Returns a readable line for each pipeline."""
        return [
            f"{spec.name}: {', '.join(map(str, spec.element_spec))}; "
            f"batch {spec.batch_size}; {spec.sample_count or 'unknown'} samples; "
            f"{spec.guarantee}; {spec.engine.replace('_', '-')} engine"
            for spec in (engine.spec for engine in self._engines.values())
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

    def _open_instrument(self) -> Instrument:
        """Binds the addresses first, so that an unusable one or a faulty package fails at once:
        opening a source can take minutes, during which the instrument shows the server."""
        added_methods()
        options = self._options
        listen = options.listen_address()
        if self._tls:
            self._tls.check()
        if not options.shares_port:
            listen.require_free()
        if options.engine:
            self._remote = options.engine(options.insecure)
        facts = Facts(options, self.health, self._engines, self._budget, self._refused)
        instrument = open_instrument(facts)
        self._closing.callback(instrument.stop)
        return instrument

    def _open_pipelines(self, pipelines: Pipelines, progress: NamedProgress | None) -> None:
        if self._remote:
            self._closing.callback(self._remote.stop)
            self._remote.start(self.instrument.monitor)
        if isinstance(pipelines, FilePipelines):
            for name, reason in pipelines.broken.items():
                self.health.go_without(name, reason)
        for name, definition in pipelines.items():
            self.health.set(name, ready=False, reason="opening its source")
            on_progress = progress(name) if progress else None
            try:
                with located(pipelines, name):
                    engine = self._open(name, definition, on_progress)
            except InfeedError as error:
                is_alone = not self._engines and name == [*pipelines][-1]
                if is_alone or not self._options.skip_broken:
                    raise
                self.health.go_without(name, str(error))
            else:
                self._engines[name] = engine
                self.health.set(name, ready=False, reason="making its first batch")
        warn_of_other_classes({name: engine.spec.classes for name, engine in self._engines.items()})

    def _open(
        self, name: str, definition: Pipeline, on_progress: ProgressCallback | None
    ) -> Engine:
        if self._remote:
            engine = self._remote.build(name, definition, self._budget, on_progress)
        else:
            option = self._options.decoder.value
            monitor = self.instrument.monitor
            engine = build(name, definition, monitor, on_progress, self._budget, option)
            if decoder := engine.figures().decoder:
                _log.info("%s: %s", name, decoder)
        self._closing.callback(engine.close)
        if self._options.shares_port:
            _require_shareable(engine)
        return engine

    def _open_rpc(self) -> Address:
        options = self._options
        listen = options.listen_address()
        self._rpc = rpc = RpcServer(
            Catalog(self._engines, self._warm_up.string_bytes, self.health.broken),
            self.instrument,
            limits=options,
            authenticator=TokenAuthenticator(options.tokens) if options.tokens else None,
            budget=self._budget,
            refused=self._refused,
        )
        credentials = self._tls.credentials() if self._tls else None
        rpc.open(listen, credentials, shares_port=options.shares_port)
        self.health.subscribe(lambda name, state: rpc.set_serving(state.ready, name))
        return Address(listen.host, rpc.port)


def unsent_limit(options: ServerOptions) -> int:
    """Returns the maximum bytes of unsent batches."""
    limit = options.memory_limit
    return default_limit() if limit is None else limit << 20


def _require_shareable(engine: Engine) -> None:
    """Raises `ConfigError` if ranks must use one process: the kernel would distribute them over
    several."""
    if not engine.spec.guarantee.can_resume:
        raise ConfigError(
            "it has no fixed order, so all ranks must read it through the same process; leave out "
            "--processes, or make it deterministic",
            at=("source",),
        )
