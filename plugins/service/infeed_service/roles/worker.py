"""The worker: TensorFlow's server that makes the batches of the jobs assigned to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed_server.imports import loading_tensorflow
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.serving.health import Readiness
from infeed_service.options import WorkerOptions, parse_dispatcher
from infeed_service.roles.address import derive, find_reach_problem, with_port
from infeed_service.roles.base import Role
from infeed_service.roles.loopback import check_listen_address
from infeed_service.rpc import DispatcherClient, JournalMark, get_worker_tasks

log = logging.getLogger(__name__)

DISPATCHER_START_TIMEOUT_SECONDS = 30.0
"""Wait for the dispatcher to start, since containers start in any order."""

REGISTRATION_TIMEOUT_SECONDS = 15.0
"""Wait for a worker to be reachable and registered: a new host name takes a while to resolve."""

HEARTBEAT_INTERVAL_SECONDS = 5.0
"""Period of a worker's reports to its dispatcher."""

CHECK_INTERVAL_SECONDS = 2.0
"""Period of the checks of the dispatcher's journal."""

DISPATCHER_TIMEOUT_SECONDS = 60.0
"""Wait of TensorFlow's requests for a task's data set, after which the task fails: longer than a
restart of the dispatcher takes."""

_RETRY_INTERVAL_SECONDS = 0.5


class WorkerRole(Role):
    """A worker in this process. After it stops, the dispatcher keeps its tasks for its address."""

    def __init__(self, options: WorkerOptions) -> None:
        """Checks the options without importing TensorFlow. Raises `ConfigError`."""
        self.dispatcher = parse_dispatcher(options.dispatcher)
        super().__init__(options)
        self._client = DispatcherClient(self.dispatcher)
        self._options = options

    @property
    def tasks(self) -> int:
        return int(self._server._num_tasks()) if self._server else 0

    def start(self) -> None:
        """Starts the worker and returns once it is registered and answers at its address.

        Raises `ServerUnavailableError`, and `ConfigError` if it cannot listen.
        """
        timeout = DISPATCHER_START_TIMEOUT_SECONDS
        if problem := _wait(self._find_dispatcher_problem, timeout):
            raise ServerUnavailableError(
                f"{problem} (tried for {timeout:g} s); check that `infeed dispatcher` runs there, "
                "that --dispatcher is the address it printed, and that this host may connect to it",
                target=self.dispatcher,
            )
        advertised = self._advertised or derive(self._listen, self.dispatcher)
        self._advertised = advertised
        check_listen_address(self._listen, insecure=self._insecure)
        self._wait_until_found(lambda: find_reach_problem(self._listen, advertised))
        # Imported after all checks, since it takes seconds.
        with loading_tensorflow():
            import tensorflow as tf  # noqa: PLC0415
        from tensorflow.core.protobuf.service_config_pb2 import WorkerConfig  # noqa: PLC0415

        config = WorkerConfig(
            port=self._listen.port,
            protocol="grpc",
            dispatcher_address=self.dispatcher,
            worker_address=with_port(advertised),
            worker_tags=["infeed", *(self._options.tag or [])],
            heartbeat_interval_ms=int(HEARTBEAT_INTERVAL_SECONDS * 1000),
            dispatcher_timeout_ms=int(DISPATCHER_TIMEOUT_SECONDS * 1000),
            shutdown_quiet_period_ms=int(self._options.grace * 1000),
        )
        try:
            self._start_server("worker", tf.data.experimental.service.WorkerServer, config)
            self._wait_until_found(self._find_problem)
        except BaseException:
            self.stop()
            raise

    def _wait_until_found(self, find_problem: Callable[[], str | None]) -> None:
        if problem := _wait(find_problem, REGISTRATION_TIMEOUT_SECONDS):
            raise ServerUnavailableError(
                f"the advertised address {self.address} does not reach this worker: {problem}; "
                "give --advertise HOST:PORT, an address where trainers and the dispatcher at "
                f"{self.dispatcher} reach it",
                target=self.address,
            )

    def _find_dispatcher_problem(self) -> str | None:
        try:
            self._client.get_version()
        except ServerUnavailableError as error:
            return error.message
        return None

    def _find_problem(self) -> str | None:
        """Returns why trainers would not find this worker; None if they would."""
        try:
            get_worker_tasks(self.address)
            if self.address in self._client.get_workers():
                return None
        except InfeedError as error:
            return error.message
        return "the dispatcher does not list it"


class DispatcherMonitor(PeriodicTask):
    """Detects a dispatcher that restarted without its journal.

    A worker mistakes a new task for its old one with the same number and serves the wrong data, so
    it must be restarted too.
    """

    def __init__(self, dispatcher: str) -> None:
        """Raises `ServerUnavailableError` if the dispatcher at host:port does not answer."""
        super().__init__("journal", CHECK_INTERVAL_SECONDS, self.run_once)
        self._dispatcher = dispatcher
        self._mark = JournalMark(DispatcherClient(dispatcher))
        self._mark.place()
        self._state = Readiness(True, "it answers")
        self.restart_reason: str | None = None
        """The reason to restart the worker; it is set once."""

    def readiness(self) -> Mapping[str, Readiness]:
        """Returns the readiness of the dispatcher by its address."""
        return {self._dispatcher: self._state}

    def run_once(self) -> None:
        before, self._state = self._state, Readiness(True, "it answers")
        try:
            if self._mark.is_lost():
                self.restart_reason = (
                    f"the dispatcher at {self._dispatcher} began a new journal, which lacks this "
                    "worker's tasks"
                )
        except InfeedError as error:
            self._state = Readiness(False, error.message)
        if self._state.ready != before.ready:
            state = "answers again" if self._state.ready else "does not answer"
            log.warning("the dispatcher %s: %s", state, self._state.reason)


def _wait(find_problem: Callable[[], str | None], timeout: float) -> str | None:
    """Returns None once there is no problem, or the last problem after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    logged = False
    while problem := find_problem():
        if time.monotonic() >= deadline:
            return problem
        if not logged:
            log.info("waiting: %s", problem)
            logged = True
        time.sleep(_RETRY_INTERVAL_SECONDS)
    return None
