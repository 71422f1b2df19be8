"""RPC client of TensorFlow's data service dispatcher and workers, without TensorFlow.

TensorFlow's own client waits forever for an unreachable dispatcher or worker, and only logs it. So
infeed checks first, with a timeout: that the processes are reachable and speak the protocol, and
which workers there are. The messages are in `cluster.proto`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
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

DISPATCHER_ROLE = "dispatcher"

STATIC_SHARDING = "static"
"""Published as `sharding` by a dispatcher with a fixed list of workers."""
DYNAMIC_SHARDING = "dynamic"
"""Published as `sharding` by a dispatcher without such a list."""

_PUBLISHED = re.compile(rb"(tensorflow|infeed|journal|sharding)=([0-9A-Za-z.+_-]+)")

_MAX_CONCURRENT_CALLS = 16
"""Workers called at the same time: one that does not respond must not delay the others."""


@dataclass(frozen=True)
class DispatcherClient:
    """Client of the dispatcher at `address`, host:port. Each call may take `timeout` seconds.

    Raises `ServerUnavailableError` when there is no response, and `ProtocolError` when the process
    is not a dispatcher of TensorFlow's data service.
    """

    address: str
    timeout: float = CALL_TIMEOUT_SECONDS

    def get_version(self) -> int:
        """Returns the protocol version that the processes of the service share."""
        response = self.call("GetVersion", messages.Nothing(), messages.DispatcherVersion)
        return int(response.version)

    def get_workers(self) -> list[str]:
        """Returns the sorted addresses, host:port, of all registered workers, dead ones too."""
        response = self.call("GetWorkers", messages.Nothing(), messages.Workers)
        return sorted(worker.address for worker in response.workers)

    def get_element_spec(self, dataset_id: str) -> bytes | None:
        """Returns a data set's element spec, as TensorFlow serializes it; None: not registered."""
        request = messages.DatasetQuestion(dataset_id=dataset_id)
        try:
            response = self.call("GetDataServiceMetadata", request, messages.DatasetMetadata)
        except ServerError as error:
            if "NOT_FOUND" in error.message:
                return None
            raise
        return bytes(response.element_spec)

    def get_published(self, role: str) -> Iterator[dict[str, str]]:
        """Yields what an infeed process published about itself as `role`; the last one counts.

        The dispatcher has no field for it, but it stores the element structure of each registered
        data set, so a role registers a data set whose elements have `name=value` pairs as keys. A
        registered structure cannot change, so data sets are numbered.
        """
        number = 0
        while (spec := self.get_element_spec(published_dataset_id(role, number))) is not None:
            yield {name.decode(): value.decode() for name, value in _PUBLISHED.findall(spec)}
            number += 1

    def call(self, method: str, request: Any, response: Any) -> Any:
        """Calls any method; `response` is the class of its response."""
        path = f"/tensorflow.data.DispatcherService/{method}"
        return _call("dispatcher", self.address, path, request, response, self.timeout)


def published_dataset_id(role: str, number: int) -> str:
    """Returns the id of the data set with what a role published, its first one or a later one."""
    return f"infeed-role-{role}-{number}"  # the dispatcher uses it as a file name


def get_worker_tasks(address: str, timeout: float = CALL_TIMEOUT_SECONDS) -> list[int]:
    """Returns the task ids of the worker at `address`, host:port, which shows that it is alive.

    Raises as `DispatcherClient` does.
    """
    path = "/tensorflow.data.WorkerService/GetWorkerTasks"
    response = _call("worker", address, path, messages.Nothing(), messages.WorkerTasks, timeout)
    return [int(task.task_id) for task in response.tasks]


def find_unreachable(workers: list[str], timeout: float = CALL_TIMEOUT_SECONDS) -> dict[str, str]:
    """Returns those workers that do not respond to this machine, each with the reason."""

    def check(worker: str) -> str | None:
        try:
            get_worker_tasks(worker, timeout)
        except InfeedError as error:
            return error.message
        return None

    with ThreadPoolExecutor(_MAX_CONCURRENT_CALLS, "infeed-worker-check") as pool:
        reasons = zip(workers, pool.map(check, workers), strict=True)
        return {worker: reason for worker, reason in reasons if reason is not None}


def _call(role: str, address: str, path: str, request: Any, response: Any, timeout: float) -> Any:
    call = GrpcCall(
        address,
        path,
        iter([request]),
        timeout=timeout,
        on_draining=lambda: None,
        on_closed=lambda _: None,
    )
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
