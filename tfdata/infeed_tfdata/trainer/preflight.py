"""Preflight checks: whether a data service's processes can be reached from here.

TensorFlow waits silently for processes that cannot be reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Literal

import tensorflow as tf

from infeed.shared.errors import ConfigError, ServerUnavailableError
from infeed.shared.spec.dataset import RegisteredDataset
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS
from infeed_tfdata.rpc import (
    CALL_TIMEOUT_SECONDS,
    STATIC_SHARDING,
    DispatcherClient,
    find_unreachable,
)

log = logging.getLogger(__name__)


def check_version(registered: RegisteredDataset, server: str) -> None:
    """Raises `ConfigError` if the minor version of TensorFlow differs from the server's."""
    if _minor_version(tf.__version__) != _minor_version(registered.tensorflow_version):
        raise ConfigError(
            f"this process has TensorFlow {tf.__version__}, the infeed server at {server} has "
            f"{registered.tensorflow_version}: trainers, workers and servers of a data service "
            "need the same version; install the version of the server here",
            here=tf.__version__,
            there=registered.tensorflow_version,
        )


def check_policy(registered: RegisteredDataset, policy: Any) -> None:
    """Raises `ConfigError` if the dispatcher cannot assign fixed parts to its workers.

    TensorFlow would raise only at the first batch, when the dispatcher has already recorded the
    job: from then on it could assign no task to any worker that returns, in no job.
    """
    address = registered.dispatcher_address
    if not DispatcherClient(address).has_dataset(STATIC_SHARDING):
        raise ConfigError(
            f"processing_mode {policy.name.lower()} gives each worker a fixed part, so the "
            f"dispatcher at {address} must be started with the list of its workers: infeed "
            "dispatcher --worker-address HOST:PORT, once for each worker; or use processing_mode "
            "dynamic",
            dispatcher=address,
        )


def check_processes(
    registered: RegisteredDataset,
    server: str,
    deadline: float,
    required: Literal["all", "live", "any", "none"],
) -> None:
    """Waits until `deadline`, of `time.monotonic`, for the dispatcher, and workers that can be
    reached from here.

    `required` are all workers, those that the server can reach ("live"), any one, or none. Logs the
    others that cannot be reached. Raises `ServerUnavailableError` with the reason for each, and
    `ProtocolError` if the address is not a dispatcher's.
    """
    dispatcher = registered.dispatcher_address
    lost = set(registered.lost_workers)
    workers: list[str] = []
    missing: dict[str, str] = {}
    problem: str | None = None
    for seconds in _call_timeouts(deadline):
        try:
            workers, problem = DispatcherClient(dispatcher, seconds).get_workers(), None
        except ServerUnavailableError as error:
            problem = error.message
            continue
        missing = {} if required == "none" else find_unreachable(workers, seconds)
        if required == "none" or (len(missing) < len(workers) and lost.issuperset(missing)):
            break
    if problem:
        raise ServerUnavailableError(
            f"{problem}; the infeed server at {server} reports that it is up, so it has ended "
            "since, or this address cannot be reached from here",
            dispatcher=dispatcher,
            server=server,
        )
    if required == "none":
        return
    if not workers:
        raise ServerUnavailableError(
            f"the dispatcher at {dispatcher} has no workers; start some with: infeed worker "
            f"--dispatcher {dispatcher}",
            dispatcher=dispatcher,
        )
    if not missing:
        return
    listed = "; ".join(f"{worker}: {reason}" for worker, reason in missing.items())
    message = (
        f"{len(missing)} of the {len(workers)} workers of the dispatcher at {dispatcher} cannot be "
        f"reached from here: {listed}. `infeed worker --advertise` sets the address of a worker; "
        "one that has ended stays registered as long as the dispatcher's journal exists"
    )
    missing_required = {"all": set(missing), "live": set(missing) - lost}.get(required)
    if missing_required or len(missing) == len(workers):
        raise ServerUnavailableError(message, dispatcher=dispatcher, workers=", ".join(missing))
    log.warning("%s. Batches come from the others", message)


def _call_timeouts(deadline: float) -> Iterator[float]:
    """Yields the timeout of each attempt until the deadline; makes at least one."""
    pause = MIN_BACKOFF_SECONDS
    while True:
        left = deadline - time.monotonic()
        yield min(CALL_TIMEOUT_SECONDS, max(1.0, left))
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, MAX_BACKOFF_SECONDS)


def _minor_version(version: str) -> list[str]:
    return version.split(".")[:2]
