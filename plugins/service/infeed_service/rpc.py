"""RPC client of TensorFlow's data service: its dispatcher and workers, without TensorFlow.

TensorFlow's own client waits forever for an unreachable dispatcher or worker, and only logs it, so
infeed first checks with a timeout. The messages are in `cluster.proto`.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from infeed.rpc.call import GrpcCall, read_single_response
from infeed.shared.errors import (
    InfeedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)
from infeed.v1 import cluster_pb2 as messages

CALL_TIMEOUT_SECONDS = 5.0

STATIC_SHARDING = "infeed-static-sharding"
"""Id of a data set that marks a dispatcher started with a fixed list of workers."""

_MAX_CONCURRENT_CALLS = 16
"""Workers called concurrently, so that one without a response does not delay the others."""


@dataclass(frozen=True)
class DispatcherClient:
    """A client of the dispatcher at `address`, host:port. Each call may take `timeout` seconds.

    Raises `ServerUnavailableError` when there is no response, and `ProtocolError` when the process
    is not a dispatcher of TensorFlow's data service.
    """

    address: str
    timeout: float = CALL_TIMEOUT_SECONDS

    def get_version(self) -> int:
        """Returns the protocol version shared by the processes of the service."""
        response = self.call("GetVersion", messages.Nothing(), messages.DispatcherVersion)
        return int(response.version)

    def get_workers(self) -> list[str]:
        """Returns the sorted addresses, host:port, of all registered workers, even dead ones."""
        response = self.call("GetWorkers", messages.Nothing(), messages.Workers)
        return sorted(worker.address for worker in response.workers)

    def has_dataset(self, dataset_id: str) -> bool:
        """Returns whether a data set is registered."""
        request = messages.DatasetQuestion(dataset_id=dataset_id)
        try:
            self.call("GetDataServiceMetadata", request, messages.DatasetMetadata)
        except ServerError as error:
            if "NOT_FOUND" in error.message:
                return False
            raise
        return True

    def call(self, method: str, request: Any, response: Any) -> Any:
        """Calls any method; `response` is the class of its response."""
        path = f"/tensorflow.data.DispatcherService/{method}"
        return _call("dispatcher", self.address, path, request, response, self.timeout)


class JournalMark:
    """A data set in a dispatcher's journal; its absence shows that the journal was lost.

    A dispatcher without its old journal numbers jobs and tasks from the beginning, and TensorFlow's
    workers and clients mistake the new ones for their own with the same numbers.
    """

    def __init__(self, dispatcher: DispatcherClient) -> None:
        self._dispatcher = dispatcher
        self._id: str | None = None

    def place(self) -> None:
        """Registers a new mark. Raises `ServerUnavailableError`."""
        dataset_id = f"infeed-mark-{uuid.uuid4().hex}"
        register_mark(self._dispatcher.address, dataset_id)
        self._id = dataset_id

    def is_lost(self) -> bool:
        """Returns whether the journal lost the mark. Raises the errors of `DispatcherClient`."""
        return self._id is not None and not self._dispatcher.has_dataset(self._id)


def register_mark(dispatcher: str, dataset_id: str) -> None:
    """Registers a data set without content. Raises `ServerUnavailableError`."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds

    try:
        tf.data.experimental.service.register_dataset(
            f"grpc://{dispatcher}", tf.data.Dataset.range(1), dataset_id=dataset_id
        )
    except tf.errors.OpError as error:
        raise ServerUnavailableError(
            f"dispatcher {dispatcher} cannot store a data set: {error.message}", target=dispatcher
        ) from None


def get_worker_tasks(address: str, timeout: float = CALL_TIMEOUT_SECONDS) -> list[int]:
    """Returns the task ids of the worker at `address`, host:port; an answer shows that it is alive.
    Raises the errors of `DispatcherClient`."""
    path = "/tensorflow.data.WorkerService/GetWorkerTasks"
    response = _call("worker", address, path, messages.Nothing(), messages.WorkerTasks, timeout)
    return [int(task.task_id) for task in response.tasks]


@dataclass(frozen=True)
class Silence:
    """The time since which a worker has not answered, and the reason."""

    since: float
    reason: str


class WorkerCheck:
    """The workers of a dispatcher, divided by whether they answered this machine's last check."""

    def __init__(
        self,
        dispatcher: DispatcherClient,
        timeout: float = CALL_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dispatcher, self._timeout, self._clock = dispatcher, timeout, clock
        self.tasks: dict[str, int] = {}
        """Number of tasks of each worker that answered."""
        self.silent: dict[str, Silence] = {}
        """The other workers, with the first check that each did not answer."""

    def run(self) -> None:
        """Probes all workers. Raises the errors of `DispatcherClient`."""
        tasks: dict[str, int] = {}
        silent: dict[str, Silence] = {}

        def probe(worker: str) -> None:
            try:
                tasks[worker] = len(get_worker_tasks(worker, self._timeout))
            except InfeedError as error:
                before = self.silent.get(worker)
                since = before.since if before else self._clock()
                silent[worker] = Silence(since, error.message)

        workers = self._dispatcher.get_workers()
        with ThreadPoolExecutor(_MAX_CONCURRENT_CALLS, "infeed-worker-check") as pool:
            list(pool.map(probe, workers))
        self.tasks, self.silent = tasks, silent

    def silent_for(self, seconds: float, after: float = 0.0) -> tuple[str, ...]:
        """Returns the workers silent for at least this long, but not yet at the time `after`."""
        latest = self._clock() - seconds
        silent = sorted(self.silent.items())
        return tuple(worker for worker, silence in silent if after <= silence.since <= latest)


def _call(role: str, address: str, path: str, request: Any, response: Any, timeout: float) -> Any:
    call = GrpcCall(address, path, iter([request]), timeout=timeout)
    try:
        with contextlib.closing(call):
            return read_single_response(call, response)
    except (ServerUnavailableError, StallError) as error:
        raise ServerUnavailableError(
            f"no {role} of TensorFlow's data service answers at {address}: {error.message}",
            **error.metadata,
        ) from None
    except ProtocolError as error:
        raise ProtocolError(
            f"{address} is not a {role} of TensorFlow's data service", **error.metadata
        ) from error
