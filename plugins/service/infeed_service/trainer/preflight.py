"""Preflight checks that a data service is the server's and can be reached from here.

TensorFlow waits silently for unreachable processes.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import tensorflow as tf

from infeed.shared.errors import ConfigError, ServerUnavailableError
from infeed_service.dataset import RegisteredDataset
from infeed_service.rpc import STATIC_SHARDING, DispatcherClient, WorkerCheck
from infeed_service.trainer.options import DistributeOptions, ShardingPolicy

log = logging.getLogger(__name__)

_RETRY_INTERVAL_SECONDS = 0.5


def check_service(registered: RegisteredDataset, server: str, options: DistributeOptions) -> None:
    """Waits until the dispatcher and the workers required by the options can be reached from here.

    Raises `ServerUnavailableError` after the timeout, `ConfigError` for another version of
    TensorFlow or a policy that the dispatcher does not support, and `ProtocolError` if the address
    is not a dispatcher's.
    """
    here, there = tf.__version__, registered.tensorflow_version
    if here.split(".")[:2] != there.split(".")[:2]:
        raise ConfigError(
            f"this process has TensorFlow {here} and the infeed server at {server} has {there}, "
            "but a data service needs one version; install the server's version here",
            here=here,
            there=there,
        )
    deadline = time.monotonic() + options.timeout
    while problem := _find_problem(registered, options):
        if time.monotonic() >= deadline:
            dispatcher = registered.dispatcher_address
            raise ServerUnavailableError(problem, dispatcher=dispatcher, server=server)
        time.sleep(_RETRY_INTERVAL_SECONDS)
    if options.processing_mode not in (ShardingPolicy.OFF, ShardingPolicy.DYNAMIC):
        _check_worker_list(registered.dispatcher_address, options.processing_mode)


def fetch_element_spec(pipeline: str, registered: RegisteredDataset) -> Any:
    """Fetches the element spec `(fields, metadata)` of a registered dataset from the dispatcher.

    Raises `ConfigError` if the dispatcher does not know the dataset.
    """
    address, service = registered.dispatcher_address, tf.data.experimental.service
    with tf.init_scope():  # fetches now, even while a graph is built
        try:
            return service.from_dataset_id(
                ShardingPolicy.OFF, f"grpc://{address}", registered.dataset_id
            ).element_spec
        except (ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"the dispatcher at {address} does not know the dataset of pipeline {pipeline!r}; "
                "check that the address leads to the same dispatcher here and at the infeed server",
                dispatcher=address,
            ) from error


def _find_problem(registered: RegisteredDataset, options: DistributeOptions) -> str | None:
    """Returns why the dataset would wait for a process. Logs missing workers that it can spare."""
    dispatcher = registered.dispatcher_address
    workers = WorkerCheck(DispatcherClient(dispatcher))
    try:
        workers.run()
    except ServerUnavailableError as error:
        return f"{error.message}; the infeed server can reach it, so make it reachable from here"
    missing = workers.silent
    if not missing:
        return (
            None
            if workers.tasks
            else (
                f"the dispatcher at {dispatcher} has no workers; start some with: infeed worker "
                f"--dispatcher {dispatcher}"
            )
        )
    reasons = "; ".join(f"{worker}: {silence.reason}" for worker, silence in missing.items())
    message = (
        f"{len(missing)} of the {len(missing) + len(workers.tasks)} workers of the dispatcher at "
        f"{dispatcher} cannot be reached from here: {reasons}. `infeed worker --advertise` sets a "
        "worker's address; an ended worker stays registered"
    )
    # Coordinated reads take a round from each worker in turn. Finite data ends when every worker
    # reports its end, which an infeed dispatcher does for lost workers.
    needed = set(missing)
    if options.num_consumers is None:
        needed = set() if options.epochs is None else needed - set(registered.lost_workers)
    if needed or not workers.tasks:
        return message
    log.warning("%s. Batches come from the others", message)
    return None


def _check_worker_list(dispatcher: str, policy: Any) -> None:
    """Raises `ConfigError` if the dispatcher cannot assign fixed parts to its workers.

    TensorFlow would raise only at the first batch, when the dispatcher has already recorded the
    job; after that, it could not assign a task of any job to a worker that returns.
    """
    if not DispatcherClient(dispatcher).has_dataset(STATIC_SHARDING):
        raise ConfigError(
            f"processing_mode {policy.name.lower()} gives each worker a fixed part, so the "
            f"dispatcher at {dispatcher} must be started with a list of its workers; give infeed "
            "dispatcher --worker-address HOST:PORT for each, or use dynamic",
            dispatcher=dispatcher,
        )
