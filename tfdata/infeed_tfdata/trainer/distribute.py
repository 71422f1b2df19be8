"""A `tf.data.Dataset` over a pipeline of TensorFlow's data service, read from its workers.

    dataset = infeed.tensorflow.distribute("localhost:7470", "imagenet-train", epochs=1)
    model.fit(dataset)

The infeed server only registers the pipeline; the batches come from the workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any, Literal

import tensorflow as tf

from infeed.http2.tls_config import TLS
from infeed.keras.elements import DEFAULT_LABEL, keras_arranger
from infeed.prefetch.feed_options import FeedOptions
from infeed.ranks import warn_of_equal_batches
from infeed.rpc.channel import open_transport
from infeed.rpc.credentials import Token
from infeed.shared.arguments import check_flag, check_seconds, check_text
from infeed.shared.errors import InvalidRequestError
from infeed.shared.finish import finished_spec
from infeed.shared.spec import PipelineSpec, Remainder
from infeed.shared.spec.dataset import COMPRESSIONS, Compression, DatasetRequest, RegisteredDataset
from infeed.shared.tensorflow.finish import finish
from infeed.tensorflow.elements import disable_auto_shard
from infeed.transport import Transport
from infeed_tfdata.trainer.elements import fetch_element_spec
from infeed_tfdata.trainer.job import (
    SHARDING_POLICIES,
    STATIC_POLICIES,
    ServiceJob,
    TargetWorkers,
    require_elements,
)
from infeed_tfdata.trainer.preflight import check_policy, check_processes, check_version

SAMPLE_IDS = "sample_ids"


def distribute(
    target: str,
    pipeline: str,
    *,
    batch_size: int | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    remainder: Remainder | None = None,
    processing_mode: str | tf.data.experimental.service.ShardingPolicy = "dynamic",
    job_name: str | None = None,
    num_consumers: int | None = None,
    consumer_index: int | None = None,
    cross_trainer_cache: str | None = None,
    compression: Compression | None = None,
    max_outstanding_requests: int | None = None,
    target_workers: TargetWorkers = "auto",
    label: str | None = DEFAULT_LABEL,
    mask: bool | None = None,
    sample_ids: bool = False,
    timeout: float = 20.0,
    token: Token | None = None,
    tls: TLS | bool | None = None,
    transport: Transport | None = None,
) -> tf.data.Dataset:
    """Returns the pipeline's batches as a dataset with static shapes, ready for Keras' `fit`.

    Each element is `(x, y)`: y is the field `label`, x the only other field or a dict of the
    others. With `label=None`, or without a field "label", it is the dict of all fields. With `mask`
    a float32 weight per slot, 1 or 0, comes last: `(x, y, weights)` or `(dict, weights)`. All are
    [slots, ...]; finish transforms are applied, and empty slots are zero.

    target                    the infeed server, as in `connect`
    pipeline                  name of the pipeline; the error for an unknown name lists the known
                              ones
    batch_size                slots of a batch; None: the pipeline's
    seed                      seed of order and augmentation; None: the pipeline's
    epochs                    number of epochs; None: endless
    remainder                 `"drop"` or `"pad"` the last samples; None: the pipeline's
    processing_mode           how the workers share the batches: the name of a policy, in any case,
                              or TensorFlow's `ShardingPolicy`. `"dynamic"`: each goes to one
                              worker; `"off"`: each worker makes all. With `"file"`, `"data"`,
                              `"file_or_data"` and `"hint"` each makes its part, and the dispatcher
                              must have a fixed list of workers
    job_name                  the job to join: each batch goes to one of its trainers, which all
                              have the same options; None: a new job
    num_consumers             coordinated reads: number of trainers in the job. In each round each
                              gets one batch, all from the same worker
    consumer_index            this trainer's number among them, from 0
    cross_trainer_cache       name of this trainer: trainers of the job with other names may get
                              the same batches, from the workers' memory. Requires `job_name`, and
                              no `epochs`
    compression               of batches on the network: `"none"`, `"snappy"`, or `"auto"` (not
                              within a host); None: the server's choice
    max_outstanding_requests  batches requested at a time, which bounds the memory; None:
                              TensorFlow's choice
    target_workers            `"auto"`, `"any"`, or `"local"`: only workers in this process
    label                     the field used as y; None: the elements are dicts of all fields
    mask                      whether a weight per slot comes last; None: if slots can be empty
    sample_ids                whether the inputs have a field `sample_ids`: int64 for each slot,
                              the sample's number in the source, -1 for an empty slot
    timeout                   seconds to wait for the server, and then for dispatcher and workers
    token                     authenticates this trainer at the server, as in `connect`; the data
                              service itself has no tokens
    tls                       encrypts the connection to the server, as in `connect`; the data
                              service itself has no encryption
    transport                 replaces gRPC to the server

    Guarantee: no order; each batch at most once, a lost worker's batches are lost. With
    `processing_mode` "dynamic" and no loss, each batch once among all trainers of the job.

    A second iteration reads the data from the beginning, shared with the other trainers of the
    job that iterate again. A job without data left, because it has ended or other trainers have
    read all of it, raises `tf.errors.InvalidArgumentError` at the first batch; TensorFlow alone
    would return no batches.

    Raises `ServerUnavailableError` (server, dispatcher or workers cannot be reached from here),
    `PipelineNotFoundError` (lists the known ones), `InvalidRequestError` (an option, or a pipeline
    that is not on the data service), `ConfigError` (another version of TensorFlow, a dispatcher
    that does not know the dataset), `ProtocolError`, `FingerprintError`, `AuthenticationError` and
    `PermissionDeniedError`.
    """
    options = FeedOptions(
        batch_size=batch_size, seed=seed, epochs=epochs, remainder=remainder, job_name=job_name
    )
    check_text("pipeline", pipeline, '"photos"')
    timeout = check_seconds("timeout", timeout)
    check_flag("sample_ids", sample_ids)
    if compression is not None and compression not in COMPRESSIONS:
        raise InvalidRequestError(
            f"compression must be one of {', '.join(COMPRESSIONS)}, not {compression!r}"
        )
    job = ServiceJob(
        pipeline,
        processing_mode,
        job_name,
        num_consumers,
        consumer_index,
        cross_trainer_cache,
        max_outstanding_requests,
        target_workers,
        epochs,
    )
    if job_name is None:
        warn_of_equal_batches(
            f"the dataset of {pipeline!r} has no job_name, so it is a job of this process alone",
            "job_name, the same in each process, to read each batch in one of them",
        )
    client = open_transport(target, token, tls, transport)
    with closing(client) if transport is None else nullcontext():
        spec = client.get_pipeline(pipeline, timeout)
        request = DatasetRequest(
            pipeline=pipeline,
            fingerprint=spec.fingerprint,
            batch_size=options.batch_size,
            seed=options.seed,
            epochs=options.epochs or 0,
            remainder=options.remainder,
            compression=compression,
            shard_hint=job.policy == SHARDING_POLICIES["hint"],
        )
        registered = client.register_dataset(request, timeout)
        server = client.target
    _check_service(registered, server, job, endless=epochs is None, timeout=timeout)
    element_spec = fetch_element_spec(spec, registered)
    if sample_ids:
        _check_sample_ids(spec, element_spec[1])
    weighted = registered.may_mask if mask is None else mask
    finish_element = _element_finisher(
        spec, registered, label=label, mask=weighted, sample_ids=sample_ids
    )

    dataset = job.read(registered, element_spec)
    if job_name is not None:
        dataset = require_elements(
            dataset,
            f"job {job.name} of pipeline {pipeline} has no batches left: it has ended, or the "
            "other trainers of the job have read all; to read the data again, use another job_name",
        )
    if spec.finish_transforms:
        dataset = dataset.map(finish_element, num_parallel_calls=tf.data.AUTOTUNE)
    else:  # too little work to prefetch a batch for it
        dataset = dataset.map(finish_element, synchronous=True)
    if epochs is None:
        endless = tf.data.experimental.INFINITE_CARDINALITY
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(endless))
    return disable_auto_shard(dataset)


def _check_service(
    registered: RegisteredDataset, server: str, job: ServiceJob, *, endless: bool, timeout: float
) -> None:
    check_version(registered, server)
    # Coordinated reads take a round from each worker in turn. Finite data ends when every worker
    # reports its end; for lost workers an infeed dispatcher reports it.
    required: Literal["all", "live", "any", "none"] = "any" if endless else "live"
    if job.workers == "local":  # it reads from no other workers
        required = "none"
    elif job.num_consumers is not None:
        required = "all"
    check_processes(registered, server, time.monotonic() + timeout, required)
    if job.policy in STATIC_POLICIES:
        check_policy(registered, job.policy)


def _check_sample_ids(spec: PipelineSpec, metadata: dict[str, Any]) -> None:
    if SAMPLE_IDS not in metadata:
        raise InvalidRequestError(
            f"the samples of pipeline {spec.name!r} have no ids, because its source is a dataset; "
            "leave out sample_ids"
        )
    if any(field.name == SAMPLE_IDS for field in spec.wire_spec):
        raise InvalidRequestError(
            f"pipeline {spec.name!r} has a field {SAMPLE_IDS!r} of its own; leave out sample_ids"
        )


def _element_finisher(
    spec: PipelineSpec,
    registered: RegisteredDataset,
    *,
    label: str | None,
    mask: bool,
    sample_ids: bool,
) -> Callable[[Any, Any], Any]:
    """Returns a function that finishes an element of the dataset, and arranges it for Keras."""
    names = [field.name for field in finished_spec(spec.wire_spec, spec.finish_transforms)]
    to_keras_element = keras_arranger([*names, *[SAMPLE_IDS] * sample_ids], label, mask)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def finish_element(fields: dict[str, tf.Tensor], metadata: dict[str, tf.Tensor]) -> Any:
        slots_mask = metadata["mask"] if registered.may_mask else None
        batch = finish(fields, spec.finish_transforms, slots_mask)
        if sample_ids:
            batch[SAMPLE_IDS] = metadata[SAMPLE_IDS]
        return to_keras_element(batch, tf.cast(metadata["mask"], tf.float32))

    return finish_element  # type: ignore[no-any-return]
