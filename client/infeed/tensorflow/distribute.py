"""A pipeline of TensorFlow's data service as a `tf.data.Dataset`, read straight from the workers.

    dataset = infeed.tensorflow.distribute("localhost:8470", "imagenet-train", epochs=1)
    model.fit(dataset)

The infeed server is asked for the pipeline only; the batches come from the workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import tensorflow as tf

from infeed.credentials import Credentials, Token
from infeed.errors import InvalidRequestError
from infeed.finish import finished_spec
from infeed.job import check_options
from infeed.registered import COMPRESSIONS, Compression, DatasetRequest, RegisteredDataset
from infeed.spec import PipelineSpec, Remainder
from infeed.tensorflow.arrange import arrangement, unsharded
from infeed.tensorflow.cluster import check_dispatcher, check_policy, check_version, check_workers
from infeed.tensorflow.elements import element_spec
from infeed.tensorflow.ended import not_ended
from infeed.tensorflow.finish import finish
from infeed.tensorflow.job import POLICIES, STATIC, Job, TargetWorkers, new_job
from infeed.tensorflow.vigil import Vigil, watch
from infeed.tls import TLS
from infeed.transport import GrpcTransport, Transport

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
    label: str | None = "label",
    mask: bool | None = None,
    sample_ids: bool = False,
    timeout: float = 20.0,
    token: Token | None = None,
    tls: TLS | bool | None = None,
    transport: Transport | None = None,
) -> tf.data.Dataset:
    """The pipeline's batches with static shapes, ready for Keras' `fit`.

    Each element is `(x, y)`: y is the field `label`, x the only other field or a dict of the
    others. Without such a field, or with `label=None`, it is the dict of all fields. With `mask` a
    float32 weight per slot, 1 or 0, comes last: `(x, y, weight)` or `(dict, weight)`. All are
    [slots, ...]; finish transforms have run, and empty slots are zero.

    target                    the infeed server, as in `infeed.connect`
    batch_size                slots of a batch; the pipeline's when None
    seed                      of order and augmentation; the pipeline's when None
    epochs                    None: endless
    remainder                 "drop" or "pad" the last samples; the pipeline's when None
    processing_mode           how workers share the batches: "dynamic" (each goes to one worker),
                              "off" (every worker makes all), and where the dispatcher has a fixed
                              list of workers "file", "data", "file_or_data" and "hint" (each makes
                              its part); or a `tf.data.experimental.service.ShardingPolicy`
    job_name                  the job to take part in: each batch goes to one of those that do. All
                              give the same options. One of its own when None
    num_consumers             coordinated reads: how many take part in the job. In each round each
                              gets one batch, of the same worker
    consumer_index            which of them this is, from 0
    cross_trainer_cache       the name of this trainer: those of other names that take part in the
                              job may get the same batches, from the workers' memory
    compression               how batches travel: "none", "snappy" or "auto" (not within a host);
                              the server's when None
    max_outstanding_requests  batches that are asked for at a time; TensorFlow chooses when None
    target_workers            "auto", "any", or "local" (only those in this very process)
    mask                      whether a weight comes last; where slots can be empty when None
    sample_ids                whether the inputs have a field `sample_ids`, int64 [slots]: the
                              sample's number in the source, -1 for an empty slot
    timeout                   seconds to wait for the server, and then for dispatcher and workers
    token, tls, transport     as in `infeed.connect`; the data service itself knows neither

    What is promised: no order; each batch at most once, a lost worker's are lost, and with
    `processing_mode` "dynamic" and no loss exactly once among all who take part in the job.

    To iterate again reads all anew, with those who take part in the job and do so too; an endless
    one begins anew. A job that has ended already, because its name was used before, or that others
    have read to its end, raises `tf.errors.InvalidArgumentError` at the first batch, where
    TensorFlow alone would give none.

    Raises `ServerUnavailableError` (nobody answers at the target, dispatcher or workers cannot be
    reached from here), `PipelineNotFoundError` (lists the known ones), `InvalidRequestError` (an
    option, or a pipeline that the server makes itself), `ConfigError` (another TensorFlow here, a
    dispatcher that does not know the data set), `ProtocolError`, `FingerprintError`,
    `AuthenticationError` and `PermissionDeniedError`.
    """
    check_options(batch_size, seed, epochs, remainder, "trainer", job_name, 0)
    if compression is not None and compression not in COMPRESSIONS:
        raise InvalidRequestError(
            f"compression must be one of {', '.join(COMPRESSIONS)}, not {compression!r}"
        )
    job = new_job(
        pipeline,
        processing_mode=processing_mode,
        job_name=job_name,
        num_consumers=num_consumers,
        consumer_index=consumer_index,
        cross_trainer_cache=cross_trainer_cache,
        max_outstanding_requests=max_outstanding_requests,
        target_workers=target_workers,
        epochs=epochs,
    )
    credentials = Credentials(token, tls)
    if transport is not None and credentials != Credentials():
        raise InvalidRequestError("token and tls are the transport's; give them to that")
    with ExitStack() as stack:
        link = transport
        if link is None:
            link = GrpcTransport(target, credentials)
            stack.callback(link.close)
        spec = link.get_pipeline(pipeline, timeout)
        request = DatasetRequest(
            pipeline=pipeline,
            fingerprint=spec.fingerprint,
            batch_size=batch_size,
            seed=seed,
            epochs=epochs or 0,
            remainder=remainder,
            compression=compression,
            shard_hint=job.policy == POLICIES["hint"],
        )
        registered = link.register_dataset(request, timeout)
        server = link.target
    _check_cluster(registered, server, job, endless=epochs is None, timeout=timeout)
    elements = element_spec(spec, registered)
    if sample_ids:
        _check_sample_ids(spec, elements[1])
    weighted = registered.may_mask if mask is None else mask
    ready = _ready(spec, registered, label=label, mask=weighted, sample_ids=sample_ids)

    dataset = job.read(registered, elements)
    if job.shared:
        dataset = not_ended(
            dataset,
            f"job {job.name} of pipeline {pipeline} gave no batch: it has ended already, or the "
            "others who take part in it took all; to read anew, take another job_name",
        )
    if spec.finish_transforms:
        dataset = dataset.map(ready, num_parallel_calls=tf.data.AUTOTUNE)
    else:  # nothing to do that would be worth a batch ahead
        dataset = dataset.map(ready, synchronous=True)
    if epochs is None:
        endless = tf.data.experimental.INFINITE_CARDINALITY
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(endless))
    dataset = unsharded(dataset)
    watch(dataset, Vigil(registered.dispatcher_address, pipeline))
    return dataset


def _check_cluster(
    registered: RegisteredDataset, server: str, job: Job, *, endless: bool, timeout: float
) -> None:
    check_version(registered, server)
    deadline = time.monotonic() + timeout
    check_dispatcher(registered.dispatcher_address, server, deadline)
    if job.target_workers != "local":  # or the others would be none of its business
        # A round is given by each worker in turn. What has an end waits for every worker to say
        # that it has no more; for one that is lost, an infeed dispatcher says it.
        coordinated = job.num_consumers is not None
        needed: Literal["all", "there", "some"] = "some" if endless else "there"
        check_workers(registered, deadline, "all" if coordinated else needed)
    if job.policy in STATIC:
        check_policy(registered, job.policy)


def _check_sample_ids(spec: PipelineSpec, about: dict[str, Any]) -> None:
    if SAMPLE_IDS not in about:
        raise InvalidRequestError(
            f"the samples of pipeline {spec.name!r} have no numbers: its source is a data set; "
            "leave out sample_ids"
        )
    if any(field.name == SAMPLE_IDS for field in spec.wire_spec):
        raise InvalidRequestError(
            f"pipeline {spec.name!r} has a field {SAMPLE_IDS!r} of its own; leave out sample_ids"
        )


def _ready(
    spec: PipelineSpec,
    registered: RegisteredDataset,
    *,
    label: str | None,
    mask: bool,
    sample_ids: bool,
) -> Callable[[Any, Any], Any]:
    """What is done with each element of the data set."""
    names = [field.name for field in finished_spec(spec.wire_spec, spec.finish_transforms)]
    arrange = arrangement([*names, *[SAMPLE_IDS] * sample_ids], label, mask)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def ready(fields: dict[str, tf.Tensor], about: dict[str, tf.Tensor]) -> Any:
        slots = about["mask"] if registered.may_mask else None
        batch = finish(fields, spec.finish_transforms, slots)
        if sample_ids:
            batch[SAMPLE_IDS] = about[SAMPLE_IDS]
        return arrange(batch, tf.cast(about["mask"], tf.float32))

    return ready  # type: ignore[no-any-return]


__all__ = ["distribute"]
