"""A worker: it makes the batches of whatever job the dispatcher gives it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from infeed.errors import ConfigError, InfeedError, ServerUnavailableError
from infeed.inquiry import Dispatcher, worker_tasks
from infeed_server.cluster import marker
from infeed_server.cluster.advertise import derive, parse_advertise
from infeed_server.cluster.loopback import keep_to_loopback, require_listen
from infeed_server.cluster.reach import elsewhere
from infeed_server.config.address import Address

if TYPE_CHECKING:
    from infeed_server.cluster.processes import TensorFlowWorker

log = logging.getLogger(__name__)

DISPATCHER_SECONDS = 30.0
"""What a dispatcher gets to come up: containers start in any order."""

CHECK_SECONDS = 15.0
"""What a worker gets to be reachable and registered, once it listens."""

HEARTBEAT_SECONDS = 5.0

PATIENCE_SECONDS = 60.0
"""How long TensorFlow asks a dispatcher that is gone for the data set of a task, before the task
fails: longer than it takes to start one anew."""

QUIET_SECONDS = 1.0
"""What those who read from it get to take what is on its way, when it ends. TensorFlow waits for so
long in any case, and drops what its tasks have ready."""

_PAUSE_SECONDS = 0.5

Sleep = Callable[[float], None]


class WorkerRole:
    """A worker in this process."""

    def __init__(
        self,
        dispatcher: str,
        listen: Address,
        advertise: str | None = None,
        tags: tuple[str, ...] = (),
        *,
        insecure: bool = False,
        http: Address | None = None,
        grace: float = QUIET_SECONDS,
        keeps_port: bool = False,
        patience: float = DISPATCHER_SECONDS,
    ) -> None:
        """`dispatcher` is its address, host:port. `advertise`: the host, or host:port, by which
        trainers and the dispatcher reach the worker; None: derived. Port 0 takes a free one.

        `http` is where its control plane answers, for its tags. `grace`, in seconds, is for those
        who read from it when it ends; `patience`, for the dispatcher to come up. `keeps_port`:
        whoever starts it anew gives it the port that it took.

        Raises `ConfigError`; it does not import TensorFlow.
        """
        where = Address.parse(dispatcher)
        if where.is_unix or where.port == 0:
            raise ConfigError(
                f"--dispatcher {dispatcher}: give the address of a dispatcher, host:port",
                address=dispatcher,
            )
        require_listen(listen, insecure=insecure)
        self.dispatcher = str(where)
        self._listen = listen
        self._insecure = insecure
        self._advertise = parse_advertise(advertise) if advertise else None
        self._tags = tags
        self._http = http
        self._grace = grace
        self._keeps_port = keeps_port
        self._patience = patience
        self._server: TensorFlowWorker | None = None
        self._place = self._advertise or listen
        self.port = 0
        """What it listens on, once it is started."""

    @property
    def address(self) -> str:
        """Where others reach it, host:port."""
        return str(Address(self._place.host, self._place.port or self.port))

    @property
    def local_address(self) -> str:
        """Where this host reaches it, host:port."""
        return str(Address("127.0.0.1", self.port))

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return self._server._num_tasks() if self._server else 0

    def start(self, sleep: Sleep = time.sleep) -> None:
        """Returns when it is registered, and answers where others look for it.

        Raises `ServerUnavailableError` when the dispatcher does not answer, or the worker is not
        found at the address that others are told; `ConfigError` when it cannot listen.
        """
        self._await_dispatcher(sleep)
        if self._advertise is None:
            self._place = derive(self._listen, self.dispatcher)
        require_listen(self._listen, insecure=self._insecure)  # the dispatcher took its time
        self._await(lambda: elsewhere(self._listen, self._place), sleep)
        # After all checks, for it takes seconds.
        import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import WorkerConfig  # noqa: PLC0415

        from infeed_server.cluster.processes import worker_server  # noqa: PLC0415

        require_listen(self._listen, insecure=self._insecure)  # importing took its time
        tags = ["infeed", f"tensorflow={tf.__version__}"]
        if self._http:
            host = derive(self._http, self.dispatcher).host
            tags.append(f"http={Address(host, self._http.port)}")
        config = WorkerConfig(
            port=self._listen.port,
            protocol="grpc",
            dispatcher_address=self.dispatcher,
            worker_address=_with_port(self._place),
            worker_tags=[*tags, *self._tags],
            heartbeat_interval_ms=int(HEARTBEAT_SECONDS * 1000),
            dispatcher_timeout_ms=int(PATIENCE_SECONDS * 1000),
            shutdown_quiet_period_ms=int(self._grace * 1000),
        )
        self._server, self.port = worker_server(config, self._listen)
        try:
            keep_to_loopback(self._listen, self.port, insecure=self._insecure)
            self._await(self._problem, sleep)
            marker.leave(self.dispatcher, marker.worker(self.address))
        except BaseException:
            self.stop()
            raise
        if self._listen.port == 0 and not self._keeps_port:
            log.warning(
                "this worker took a free port: if it is started anew it has another address and "
                "leaves its tasks behind. An infeed dispatcher ends those after a minute, and what "
                "they held is lost; with a port of its own (--listen) it goes on with them"
            )

    def stop(self) -> None:
        """Ends it. What it works on stays with the dispatcher for one at the same address."""
        if self._server:
            self._server.stop()
            self._server = None

    def _await_dispatcher(self, sleep: Sleep) -> None:
        deadline = time.monotonic() + self._patience
        told = False
        while True:
            try:
                Dispatcher(self.dispatcher).version()
                return
            except ServerUnavailableError as error:
                if time.monotonic() >= deadline:
                    raise ServerUnavailableError(
                        f"{error.message} (tried for {self._patience:g} s); check that `infeed "
                        "dispatcher` runs there, that --dispatcher is the address it printed, and "
                        "that this host may connect to it",
                        target=self.dispatcher,
                    ) from None
                if not told:
                    log.info("waiting for the dispatcher: %s", error.message)
                    told = True
            sleep(_PAUSE_SECONDS)

    def _await(self, problem: Callable[[], str | None], sleep: Sleep) -> None:
        """Returns when there is no problem any more: names take a while to become known."""
        deadline = time.monotonic() + CHECK_SECONDS
        while why := problem():
            if time.monotonic() >= deadline:
                raise ServerUnavailableError(
                    f"trainers and the dispatcher at {self.dispatcher} would look for this worker "
                    f"at {self.address}, which does not lead to it: {why}; give --advertise "
                    "HOST:PORT, an address by which they reach it",
                    target=self.address,
                )
            sleep(_PAUSE_SECONDS)

    def _problem(self) -> str | None:
        """Why nobody would find this worker."""
        try:
            worker_tasks(self.address)
        except InfeedError as error:
            return error.message
        try:
            if self.address not in Dispatcher(self.dispatcher).workers():
                return "the dispatcher does not list it"
        except InfeedError as error:
            return f"the dispatcher does not tell its workers: {error.message}"
        return None


def _with_port(place: Address) -> str:
    """As TensorFlow wants it, which fills in a port that it takes itself."""
    return str(place) if place.port else f"{str(place).removesuffix(':0')}:%port%"
