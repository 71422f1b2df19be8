"""Whether the processes of a data service can be reached from here.

TensorFlow waits without a word for those that cannot, so they are asked first.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any, Literal

import tensorflow as tf

from infeed.errors import ConfigError, ServerError, ServerUnavailableError
from infeed.inquiry import ASK_SECONDS, Dispatcher, unreachable
from infeed.registered import RegisteredDataset
from infeed.transport import FIRST_PAUSE, LONGEST_PAUSE
from infeed.v1 import cluster_pb2 as messages

log = logging.getLogger(__name__)


def check_version(registered: RegisteredDataset, server: str) -> None:
    """Raises `ConfigError` when this TensorFlow cannot be trusted to read the data set."""
    if _minor(tf.__version__) != _minor(registered.tensorflow_version):
        raise ConfigError(
            f"this process has TensorFlow {tf.__version__}, and the infeed server at {server} has "
            f"{registered.tensorflow_version}: trainers, workers and servers of a data service "
            "need the same; install the same version here",
            here=tf.__version__,
            there=registered.tensorflow_version,
        )


def check_dispatcher(address: str, server: str, deadline: float) -> None:
    """Waits until `deadline`, of `time.monotonic`, for the dispatcher to answer.

    Raises `ServerUnavailableError`, and `ProtocolError` when it is none.
    """
    why = ""
    for seconds in _attempts(deadline):
        try:
            Dispatcher(address, seconds).version()
            return
        except ServerUnavailableError as error:
            why = error.message
    raise ServerUnavailableError(
        f"{why}; the infeed server at {server} says that it is there, so it is gone, or cannot be "
        "reached from here under that address",
        dispatcher=address,
        server=server,
    )


def check_policy(registered: RegisteredDataset, policy: Any) -> None:
    """Raises `ConfigError` where the dispatcher's workers cannot be given each its fixed part.

    TensorFlow would say so only to who iterates. It is asked with a job that nobody reads.
    """
    ask = Dispatcher(registered.dispatcher_address).ask
    mode = messages.ProcessingMode(sharding_policy=int(policy))
    request = messages.JobRequest(
        dataset_id=registered.dataset_id,
        processing_mode=mode,
        job_name=f"infeed-check-{uuid.uuid4().hex}",
    )
    try:
        job = ask("GetOrCreateJob", request, messages.Job)
        iteration = messages.IterationRequest(job_id=job.job_id, repetition=0)
        client = ask("GetOrCreateIteration", iteration, messages.IterationClient)
        ask("ReleaseIterationClient", client, messages.Nothing)
    except ServerError as error:
        raise ConfigError(
            f"processing_mode {policy.name.lower()} gives each worker a part of its own, so the "
            "dispatcher must be started with the list of its workers; it is not, or one of them is "
            f"not on it: {error.message}",
            dispatcher=registered.dispatcher_address,
        ) from None


def check_workers(
    registered: RegisteredDataset, deadline: float, needed: Literal["all", "there", "some"]
) -> None:
    """Waits until `deadline`, of `time.monotonic`, for workers, and that they can be reached.

    `needed` are all of them; or all that are there, which is to say that the server can reach them;
    or just some. Others that cannot be reached are told in the log, as long as there are any that
    can. Raises `ServerUnavailableError` with the reason for each of them.
    """
    dispatcher = registered.dispatcher_address
    lost = set(registered.lost_workers)
    workers: list[str] = []
    missing: dict[str, str] = {}
    for seconds in _attempts(deadline):
        workers = Dispatcher(dispatcher, seconds).workers()
        missing = unreachable(workers, seconds)
        if len(missing) < len(workers) and lost.issuperset(missing):
            break
    if not workers:
        raise ServerUnavailableError(
            f"the dispatcher at {dispatcher} knows no worker; start some with: infeed worker "
            f"--dispatcher {dispatcher}",
            dispatcher=dispatcher,
        )
    if not missing:
        return
    listed = "; ".join(f"{worker}: {reason}" for worker, reason in missing.items())
    told = (
        f"{len(missing)} of the {len(workers)} workers that the dispatcher at {dispatcher} knows "
        f"cannot be reached from here: {listed}. `infeed worker --advertise` sets the address that "
        "a worker is known by; one that is gone stays known as long as the dispatcher's journal"
    )
    wanting = {"all": set(missing), "there": set(missing) - lost, "some": set()}[needed]
    if wanting or len(missing) == len(workers):
        raise ServerUnavailableError(told, dispatcher=dispatcher, workers=", ".join(missing))
    log.warning("%s. Batches come from the others", told)


def _attempts(deadline: float) -> Iterator[float]:
    """For each attempt until the deadline, one at least, the seconds that a question may take."""
    pause = FIRST_PAUSE
    while True:
        left = deadline - time.monotonic()
        yield min(ASK_SECONDS, max(1.0, left))
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


__all__ = ["check_dispatcher", "check_policy", "check_version", "check_workers"]
