"""Questions to the processes of TensorFlow's data service, asked without TensorFlow.

TensorFlow's own client waits for a dispatcher or a worker that nobody can reach for ever, and says
nothing of it but in a log. So who is about to use one asks here first: is it there, does it speak
the protocol, which workers does it know? `cluster.proto` has the messages.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from infeed.call import GrpcCall, only_message
from infeed.errors import (
    InfeedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)
from infeed.v1 import cluster_pb2 as messages

ASK_SECONDS = 5.0

_AT_ONCE = 16
"""Workers that are asked at the same time: one that says nothing must not hold up the others."""


@dataclass(frozen=True)
class Dispatcher:
    """The dispatcher at `address`, host:port. Each question may take `timeout` seconds.

    Raises `ServerUnavailableError` when nobody answers, and `ProtocolError` when it is no
    dispatcher of TensorFlow's data service.
    """

    address: str
    timeout: float = ASK_SECONDS

    def version(self) -> int:
        """The version of the protocol that the processes of the service have in common."""
        answer = self.ask("GetVersion", messages.Nothing(), messages.DispatcherVersion)
        return int(answer.version)

    def workers(self) -> list[str]:
        """The addresses, host:port, of the workers that have registered, sorted; some of them can
        be gone."""
        answer = self.ask("GetWorkers", messages.Nothing(), messages.Workers)
        return sorted(worker.address for worker in answer.workers)

    def element_spec(self, dataset_id: str) -> bytes | None:
        """What the elements of a data set are like, as TensorFlow writes it down; None when nobody
        has registered one under that name."""
        question = messages.DatasetQuestion(dataset_id=dataset_id)
        try:
            answer = self.ask("GetDataServiceMetadata", question, messages.DatasetMetadata)
        except ServerError as error:
            if "NOT_FOUND" in error.message:
                return None
            raise
        return bytes(answer.element_spec)

    def ask(self, method: str, request: Any, response: Any) -> Any:
        """Any method; `response` is the class of its answer."""
        path = f"/tensorflow.data.DispatcherService/{method}"
        return _ask("dispatcher", self.address, path, request, response, self.timeout)


def worker_tasks(address: str, timeout: float = ASK_SECONDS) -> list[int]:
    """The numbers of the tasks of the worker at `address`, host:port: it answers, so it is there.

    Raises as `Dispatcher` does.
    """
    path = "/tensorflow.data.WorkerService/GetWorkerTasks"
    answer = _ask("worker", address, path, messages.Nothing(), messages.WorkerTasks, timeout)
    return [int(task.task_id) for task in answer.tasks]


def unreachable(workers: list[str], timeout: float = ASK_SECONDS) -> dict[str, str]:
    """Of these workers, those that do not answer here, each with the reason."""

    def ask(worker: str) -> str | None:
        try:
            worker_tasks(worker, timeout)
        except InfeedError as error:
            return error.message
        return None

    with ThreadPoolExecutor(_AT_ONCE, "infeed-inquiry") as pool:
        answers = zip(workers, pool.map(ask, workers), strict=True)
        return {worker: why for worker, why in answers if why is not None}


def _ask(role: str, address: str, path: str, request: Any, response: Any, timeout: float) -> Any:
    call = GrpcCall(
        address,
        path,
        iter([request]),
        timeout=timeout,
        draining=lambda: None,
        closed=lambda _: None,
    )
    try:
        with contextlib.closing(call):
            return only_message(call, response)
    except (ServerUnavailableError, StallError) as error:
        raise ServerUnavailableError(
            f"no {role} of TensorFlow's data service answers at {address}: {error.message}",
            **error.metadata,
        ) from None
    except ProtocolError as error:
        raise ProtocolError(
            f"what answers at {address} is no {role} of TensorFlow's data service",
            **error.metadata,
        ) from error


__all__ = ["ASK_SECONDS", "Dispatcher", "unreachable", "worker_tasks"]
