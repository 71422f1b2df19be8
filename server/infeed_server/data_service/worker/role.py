"""The worker: TensorFlow's server that makes the batches of the jobs assigned to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from infeed.rpc.tf_dispatcher import DispatcherClient, get_worker_tasks
from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed_server.config.address import Address
from infeed_server.data_service import process_info
from infeed_server.data_service.advertised_address import check_reachable, derive, parse_advertise
from infeed_server.data_service.options import parse_dispatcher
from infeed_server.data_service.role import Role

log = logging.getLogger(__name__)

DISPATCHER_START_TIMEOUT_SECONDS = 30.0
"""For a dispatcher to start: containers start in any order."""

REGISTRATION_TIMEOUT_SECONDS = 15.0
"""For a worker to be reachable and registered: host names take a while to be known."""

HEARTBEAT_INTERVAL_SECONDS = 5.0

DISPATCHER_TIMEOUT_SECONDS = 60.0
"""For TensorFlow's requests for a task's data set, after which the task fails: longer than a
restart of the dispatcher takes."""

DRAIN_TIMEOUT_SECONDS = 1.0
"""At shutdown, for clients to receive the answers in progress. TensorFlow always waits so long, and
drops the elements that its tasks have ready."""

_RETRY_INTERVAL_SECONDS = 0.5

Sleep = Callable[[float], None]


class WorkerRole(Role):
    """A worker in this process. When it stops, the dispatcher keeps its tasks for its address."""

    def __init__(
        self,
        dispatcher: str,
        listen: Address,
        advertise: str | None = None,
        tags: tuple[str, ...] = (),
        *,
        insecure: bool = False,
        http: Address | None = None,
        grace: float = DRAIN_TIMEOUT_SECONDS,
        keeps_port: bool = False,
        dispatcher_timeout: float = DISPATCHER_START_TIMEOUT_SECONDS,
    ) -> None:
        """Checks the options without importing TensorFlow. Raises `ConfigError`.

        `dispatcher` is its address, host:port. `advertise` is the host, or host:port, by which
        trainers and the dispatcher reach the worker; None: derived. `http` is the address of the
        control plane, for a tag. `grace` is the seconds for clients at shutdown, and
        `dispatcher_timeout` those for the dispatcher to start. `keeps_port`: the parent process
        restarts the worker on the port that it took.
        """
        self.dispatcher = parse_dispatcher(dispatcher)
        super().__init__(listen, insecure=insecure)
        self._derives_address = not advertise
        if advertise:
            self._advertised = parse_advertise(advertise)
        self._tags = tags
        self._http = http
        self._grace = grace
        self._keeps_port = keeps_port
        self._dispatcher_timeout = dispatcher_timeout

    @property
    def tasks(self) -> int:
        """The number of its tasks."""
        return int(self._server._num_tasks()) if self._server else 0

    def start(self, sleep: Sleep = time.sleep) -> None:
        """Starts the worker, and returns when it is registered and answers at its address.

        Raises `ServerUnavailableError` when the dispatcher does not answer or the advertised
        address does not reach the worker, and `ConfigError` when it cannot listen.
        """
        self._wait_for_dispatcher(sleep)
        if self._derives_address:
            self._advertised = derive(self._listen, self.dispatcher)
        self._check_listen_address()
        self._wait_until_reachable(lambda: check_reachable(self._listen, self._advertised), sleep)
        # Imported after all checks, since it takes seconds.
        import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import WorkerConfig  # noqa: PLC0415

        self._check_listen_address()
        tags = ["infeed", f"tensorflow={tf.__version__}"]
        if self._http:
            host = derive(self._http, self.dispatcher).host
            tags.append(f"http={Address(host, self._http.port)}")
        config = WorkerConfig(
            port=self._listen.port,
            protocol="grpc",
            dispatcher_address=self.dispatcher,
            worker_address=_with_port(self._advertised),
            worker_tags=[*tags, *self._tags],
            heartbeat_interval_ms=int(HEARTBEAT_INTERVAL_SECONDS * 1000),
            dispatcher_timeout_ms=int(DISPATCHER_TIMEOUT_SECONDS * 1000),
            shutdown_quiet_period_ms=int(self._grace * 1000),
        )
        server = tf.data.experimental.service.WorkerServer(config, start=False)
        try:
            self._start_server(server, "worker")
            self._wait_until_reachable(self._find_problem, sleep)
            process_info.publish(self.dispatcher, process_info.worker_role(self.address))
        except BaseException:
            self.stop()
            raise
        if self._listen.port == 0 and not self._keeps_port:
            log.warning(
                "this worker listens on a free port: after a restart its address is another, and "
                "its tasks stay at the old one. An infeed dispatcher ends those after a minute, "
                "and their in-progress elements are lost; with a fixed port (--listen) it "
                "continues them"
            )

    def _wait_for_dispatcher(self, sleep: Sleep) -> None:
        deadline = time.monotonic() + self._dispatcher_timeout
        logged = False
        while True:
            try:
                DispatcherClient(self.dispatcher).get_version()
                return
            except ServerUnavailableError as error:
                if time.monotonic() >= deadline:
                    raise ServerUnavailableError(
                        f"{error.message} (tried for {self._dispatcher_timeout:g} s); check that "
                        "`infeed dispatcher` runs there, that --dispatcher is the address it "
                        "printed, and that this host may connect to it",
                        target=self.dispatcher,
                    ) from None
                if not logged:
                    log.info("waiting for the dispatcher: %s", error.message)
                    logged = True
            sleep(_RETRY_INTERVAL_SECONDS)

    def _wait_until_reachable(self, find_problem: Callable[[], str | None], sleep: Sleep) -> None:
        deadline = time.monotonic() + REGISTRATION_TIMEOUT_SECONDS
        while problem := find_problem():
            if time.monotonic() >= deadline:
                raise ServerUnavailableError(
                    f"the advertised address {self.address} does not reach this worker: {problem}; "
                    f"trainers and the dispatcher at {self.dispatcher} would connect to it; give "
                    "--advertise HOST:PORT, an address by which they reach this worker",
                    target=self.address,
                )
            sleep(_RETRY_INTERVAL_SECONDS)

    def _find_problem(self) -> str | None:
        """Returns why trainers would not find this worker, None if they would."""
        try:
            get_worker_tasks(self.address)
        except InfeedError as error:
            return error.message
        try:
            if self.address not in DispatcherClient(self.dispatcher).get_workers():
                return "the dispatcher does not list it"
        except InfeedError as error:
            return f"the dispatcher does not list its workers: {error.message}"
        return None


def _with_port(address: Address) -> str:
    """Returns the address with TensorFlow's placeholder where the port is 0."""
    return str(address) if address.port else f"{str(address).removesuffix(':0')}:%port%"
