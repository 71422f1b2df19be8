"""The worker: TensorFlow's server that makes the batches of the jobs assigned to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed_server.config.address import Address
from infeed_server.control.health import Readiness
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.processes.stderr_relay import without_banner
from infeed_tfdata.options import parse_dispatcher
from infeed_tfdata.roles.address import check_reachable, derive, parse_advertise, with_port
from infeed_tfdata.roles.base import Role
from infeed_tfdata.rpc import DispatcherClient, JournalMark, get_worker_tasks

log = logging.getLogger(__name__)

DISPATCHER_START_TIMEOUT_SECONDS = 30.0
"""For a dispatcher to start: containers start in any order."""

REGISTRATION_TIMEOUT_SECONDS = 15.0
"""For a worker to be reachable and registered: host names take a while to be known."""

HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Between a worker's reports to its dispatcher."""

CHECK_INTERVAL_SECONDS = 2.0
"""Between checks of the dispatcher's journal."""

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
        grace: float = DRAIN_TIMEOUT_SECONDS,
    ) -> None:
        """Checks the options without importing TensorFlow. Raises `ConfigError`.

        `dispatcher` is its address, host:port. `advertise` is the host, or host:port, by which
        trainers and the dispatcher reach the worker; None: derived. `grace` is the seconds for
        clients at shutdown.
        """
        self.dispatcher = parse_dispatcher(dispatcher)
        super().__init__(listen, insecure=insecure)
        self._client = DispatcherClient(self.dispatcher)
        self._derives_address = not advertise
        if advertise:
            self._advertised = parse_advertise(advertise)
        self._tags = tags
        self._grace = grace

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
        with without_banner():
            import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import WorkerConfig  # noqa: PLC0415

        config = WorkerConfig(
            port=self._listen.port,
            protocol="grpc",
            dispatcher_address=self.dispatcher,
            worker_address=with_port(self._advertised),
            worker_tags=["infeed", *self._tags],
            heartbeat_interval_ms=int(HEARTBEAT_INTERVAL_SECONDS * 1000),
            dispatcher_timeout_ms=int(DISPATCHER_TIMEOUT_SECONDS * 1000),
            shutdown_quiet_period_ms=int(self._grace * 1000),
        )
        self._check_listen_address()
        server = tf.data.experimental.service.WorkerServer(config, start=False)
        try:
            self._start_server(server, "worker")
            self._wait_until_reachable(self._find_problem, sleep)
        except BaseException:
            self.stop()
            raise

    def _wait_for_dispatcher(self, sleep: Sleep) -> None:
        def find_problem() -> str | None:
            try:
                self._client.get_version()
            except ServerUnavailableError as error:
                return error.message
            return None

        timeout = DISPATCHER_START_TIMEOUT_SECONDS
        if problem := _wait(find_problem, timeout, sleep):
            raise ServerUnavailableError(
                f"{problem} (tried for {timeout:g} s); check that `infeed dispatcher` runs there, "
                "that --dispatcher is the address it printed, and that this host may connect to it",
                target=self.dispatcher,
            )

    def _wait_until_reachable(self, find_problem: Callable[[], str | None], sleep: Sleep) -> None:
        if problem := _wait(find_problem, REGISTRATION_TIMEOUT_SECONDS, sleep):
            raise ServerUnavailableError(
                f"the advertised address {self.address} does not reach this worker: {problem}; "
                f"trainers and the dispatcher at {self.dispatcher} would connect to it; give "
                "--advertise HOST:PORT, an address by which they reach this worker",
                target=self.address,
            )

    def _find_problem(self) -> str | None:
        """Returns why trainers would not find this worker, None if they would."""
        try:
            get_worker_tasks(self.address)
            listed = self.address in self._client.get_workers()
        except InfeedError as error:
            return error.message
        return None if listed else "the dispatcher does not list it"


class DispatcherMonitor(PeriodicTask):
    """Detects a dispatcher that was restarted without its journal.

    A worker takes a new task for its old one of the same number, and serves the wrong data, so it
    must be restarted too.
    """

    def __init__(self, dispatcher: str) -> None:
        """Raises `ServerUnavailableError` when the dispatcher at host:port does not answer."""
        super().__init__("journal", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = dispatcher
        self._mark = JournalMark(DispatcherClient(dispatcher))
        self._mark.place()
        self._error: str | None = None
        """Why the dispatcher does not answer; None when it does."""
        self.restart_reason: str | None = None
        """Why the worker must be restarted; once set, it stays."""

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of the dispatcher by its address."""
        return {self._dispatcher: Readiness(self._error is None, self._error or "it answers")}

    def run_once(self) -> None:
        """Checks the dispatcher."""
        try:
            lost = self._mark.is_lost()
        except InfeedError as error:
            if self._error is None:
                log.warning("the dispatcher does not answer: %s", error.message)
            self._error = error.message
            return
        if self._error is not None:
            log.info("the dispatcher at %s answers again", self._dispatcher)
        self._error = None
        if lost:
            self.restart_reason = (
                f"the dispatcher at {self._dispatcher} began a new journal, which does not have "
                "this worker's tasks"
            )


def _wait(find_problem: Callable[[], str | None], timeout: float, sleep: Sleep) -> str | None:
    """Returns None once there is no problem, or the problem after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    logged = False
    while problem := find_problem():
        if time.monotonic() >= deadline:
            return problem
        if not logged:
            log.info("waiting: %s", problem)
            logged = True
        sleep(_RETRY_INTERVAL_SECONDS)
    return None
