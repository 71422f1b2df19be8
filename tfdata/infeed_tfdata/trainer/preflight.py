"""Preflight checks: whether a data service is the server's, and can be reached from here.

TensorFlow waits silently for processes that cannot be reached.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import tensorflow as tf

from infeed.shared.errors import ConfigError, ProtocolError, ServerUnavailableError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.dataset import RegisteredDataset
from infeed.tensorflow.generator import batch_tensor_spec
from infeed_tfdata.rpc import STATIC_SHARDING, DispatcherClient, WorkerCheck
from infeed_tfdata.trainer.options import SHARDING_POLICIES, DistributeOptions, ShardingPolicy

log = logging.getLogger(__name__)

_STATIC_POLICIES = {SHARDING_POLICIES[name] for name in ("file", "data", "file_or_data", "hint")}
"""The policies that need a dispatcher with a fixed list of workers."""

_RETRY_INTERVAL_SECONDS = 0.5


def check_service(registered: RegisteredDataset, server: str, options: DistributeOptions) -> None:
    """Waits until the dispatcher and the workers that the options need can be reached from here.

    Raises `ServerUnavailableError` after the timeout, `ConfigError` for another version of
    TensorFlow or a policy that the dispatcher cannot carry out, and `ProtocolError` if the address
    is not a dispatcher's.
    """
    here, there = tf.__version__, registered.tensorflow_version
    if here.split(".")[:2] != there.split(".")[:2]:
        raise ConfigError(
            f"this process has TensorFlow {here}, the infeed server at {server} has {there}: "
            "trainers, workers and servers of a data service need the same version; install the "
            "version of the server here",
            here=here,
            there=there,
        )
    deadline = time.monotonic() + options.timeout
    while problem := _find_problem(registered, server, options):
        left = deadline - time.monotonic()
        if left <= 0:
            raise ServerUnavailableError(
                problem, dispatcher=registered.dispatcher_address, server=server
            )
        time.sleep(min(_RETRY_INTERVAL_SECONDS, left))
    if options.processing_mode in _STATIC_POLICIES:
        _check_worker_list(registered.dispatcher_address, options.processing_mode)


def fetch_element_spec(pipeline: PipelineSpec, registered: RegisteredDataset) -> Any:
    """Fetches the element spec of a registered dataset from the dispatcher, and checks it.

    It is a pair `(fields, metadata)`. `metadata` has `epoch` (int64) and `mask` (bool [slots]),
    and if samples have an index also `start` (int64) and `sample_ids` (int64 [slots]).

    Raises `ConfigError` if the dispatcher does not know the dataset, and `ProtocolError` if the
    spec differs from the pipeline's.
    """
    address, service = registered.dispatcher_address, tf.data.experimental.service
    with tf.init_scope():  # fetch now, even while a graph is built
        try:
            stored = service.from_dataset_id(
                ShardingPolicy.OFF, f"grpc://{address}", registered.dataset_id
            ).element_spec
        except (ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"the dispatcher at {address} does not know the dataset of pipeline "
                f"{pipeline.name!r} ({registered.dataset_id}): check that this address is the same "
                "dispatcher from here as from the infeed server",
                pipeline=pipeline.name,
                dispatcher=address,
            ) from error
    slots = registered.batch_size
    fields = {field.name: batch_tensor_spec(field, slots) for field in pipeline.wire_spec}
    number = tf.TensorSpec((), tf.int64)
    metadata = {"epoch": number, "mask": tf.TensorSpec((slots,), tf.bool)}
    indexed = metadata | {"start": number, "sample_ids": tf.TensorSpec((slots,), tf.int64)}
    if stored not in [(fields, metadata), (fields, indexed)]:
        raise ProtocolError(
            f"the dataset of pipeline {pipeline.name!r} at the dispatcher {address} differs from "
            f"the infeed server's description: its elements are {stored}, not {(fields, indexed)}",
            pipeline=pipeline.name,
            dispatcher=address,
        )
    return stored


def _find_problem(
    registered: RegisteredDataset, server: str, options: DistributeOptions
) -> str | None:
    """Returns why the dataset would wait for a process. Logs workers that it does not need."""
    dispatcher = registered.dispatcher_address
    workers = WorkerCheck(DispatcherClient(dispatcher))
    try:
        workers.run()
    except ServerUnavailableError as error:
        return (
            f"{error.message}; the infeed server at {server} reports that it is up, so it has "
            "ended since, or this address cannot be reached from here"
        )
    missing = {worker: silence.reason for worker, silence in workers.silent.items()}
    if not workers.tasks and not missing:
        return (
            f"the dispatcher at {dispatcher} has no workers; start some with: infeed worker "
            f"--dispatcher {dispatcher}"
        )
    if not missing:
        return None
    listed = "; ".join(f"{worker}: {reason}" for worker, reason in missing.items())
    message = (
        f"{len(missing)} of the {len(missing) + len(workers.tasks)} workers of the dispatcher at "
        f"{dispatcher} cannot be reached from here: {listed}. `infeed worker --advertise` sets the "
        "address of a worker; one that has ended stays registered as long as the dispatcher's "
        "journal exists"
    )
    # Coordinated reads take a round from each worker in turn. Finite data ends when every worker
    # reports its end; for lost workers an infeed dispatcher reports it.
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
    job: from then on it could assign no task to any worker that returns, in no job.
    """
    if not DispatcherClient(dispatcher).has_dataset(STATIC_SHARDING):
        raise ConfigError(
            f"processing_mode {policy.name.lower()} gives each worker a fixed part, so the "
            f"dispatcher at {dispatcher} must be started with the list of its workers: infeed "
            "dispatcher --worker-address HOST:PORT, once for each worker; or use processing_mode "
            "dynamic",
            dispatcher=dispatcher,
        )
