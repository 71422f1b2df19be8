"""A `tf.data.Dataset` over a pipeline of TensorFlow's data service, read from its workers.

    dataset = infeed.tensorflow.distribute("localhost:7470", "imagenet-train", epochs=1)
    model.fit(dataset)

The infeed server only registers the pipeline; the batches come from the workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from infeed.prefetch.feed_options import document_options
from infeed.ranks import warn_of_equal_batches
from infeed.rpc.channel import open_transport
from infeed.shared.arguments import check_text
from infeed.shared.errors import InvalidRequestError
from infeed.shared.finish import finished_spec
from infeed.shared.spec import PipelineSpec
from infeed.shared.tensorflow.finish import finish
from infeed.shared.tensorflow.from_callable import take_elements, zeros
from infeed_frameworks.keras.elements import keras_arranger
from infeed_frameworks.tensorflow.generator import disable_auto_shard
from infeed_frameworks.tensorflow.strategies import replicas_of
from infeed_service.dataset import DatasetRequest, RegisteredDataset, register
from infeed_service.trainer.options import DistributeArguments, DistributeOptions, ShardingPolicy
from infeed_service.trainer.preflight import check_service, fetch_element_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

SAMPLE_IDS = "sample_ids"


@partial(document_options, model=DistributeOptions)
def distribute(
    target: str, pipeline: str, **options: Unpack[DistributeArguments]
) -> tf.data.Dataset:
    """Returns the pipeline's batches as a dataset, ready for Keras' `fit`.

    Each element is `(x, y)`: y is the field `label`, x the only other field or a dict of the
    others. With `label=None`, or without a field "label", it is the dict of all fields. Finish
    transforms are applied and empty slots are cut. With `mask`, empty slots are zero and a float32
    weight per slot, 1 or 0, comes last: `(x, y, weights)` or `(dict, weights)`.

    target                    the infeed server, as in `connect`
    pipeline                  name of the pipeline; the error for an unknown name lists those that
                              exist
    OPTIONS

    Guarantee: no order, and each batch at most once, as a lost worker's batches are lost. With
    `processing_mode` "dynamic" and no loss, each batch goes to exactly one trainer of the job.

    A second iteration reads the data from the beginning, shared with the other trainers of the
    job that iterate again. A job with no data left, because it has ended or other trainers have
    read all of it, raises `tf.errors.InvalidArgumentError` at the first batch; TensorFlow alone
    would return no batches.

    Raises `ServerUnavailableError` (server, dispatcher or workers cannot be reached from here),
    `InvalidRequestError` (a wrong option, or a pipeline that is not on the data service),
    `ConfigError` (another version of TensorFlow, or a dispatcher that does not know the dataset),
    and the errors of `connect`.
    """
    checked = DistributeOptions(**options)
    check_text("pipeline", pipeline, '"photos"')
    if checked.job_name is None:
        warn_of_equal_batches(
            f"the dataset of {pipeline!r} has no job_name, so it is a job of only this process",
            "job_name, the same in each process, to read each batch in one of them",
        )
    client = open_transport(target, checked.token, checked.tls, checked.transport)
    with closing(client) if checked.transport is None else nullcontext():
        spec = client.get_pipeline(pipeline, checked.timeout)
        request = DatasetRequest(
            pipeline=pipeline,
            fingerprint=spec.fingerprint,
            batch_size=checked.batch_size,
            seed=checked.seed,
            epochs=checked.epochs or 0,
            remainder=checked.remainder,
            compression=checked.compression,
            shard_hint=checked.processing_mode == ShardingPolicy.HINT,
        )
        registered = register(client, request, checked.timeout)
        server = client.target
    check_service(registered, server, checked)
    element_spec = fetch_element_spec(pipeline, registered)
    finish_element = _element_finisher(spec, registered, element_spec[1], checked)

    is_cut = registered.may_mask and not checked.mask
    is_required = checked.epochs is not None and not is_cut
    replicas = replicas_of(checked.replicas, None, is_required=is_required)
    dataset = _read(pipeline, registered, element_spec, checked)
    if checked.mask and is_required:
        dataset = dataset.concatenate(_empty_batches(element_spec, replicas - 1))
    if spec.finish_transforms:
        dataset = dataset.map(finish_element, num_parallel_calls=tf.data.AUTOTUNE)
    else:  # too little work to justify prefetching a batch
        dataset = dataset.map(finish_element, synchronous=True)
    if checked.epochs is None:
        endless = tf.data.experimental.INFINITE_CARDINALITY
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(endless))
    return disable_auto_shard(dataset)


def _read(
    pipeline: str, registered: RegisteredDataset, element_spec: Any, options: DistributeOptions
) -> tf.data.Dataset:
    """Returns the elements of the registered dataset for this consumer of the job."""
    service, cache = tf.data.experimental.service, options.cross_trainer_cache
    dataset = service.from_dataset_id(
        options.processing_mode,
        f"grpc://{registered.dispatcher_address}",
        registered.dataset_id,
        element_spec=element_spec,
        job_name=options.job_name or f"{pipeline}-{uuid.uuid4().hex}",
        consumer_index=options.consumer_index,
        num_consumers=options.num_consumers,
        max_outstanding_requests=options.max_outstanding_requests,
        cross_trainer_cache=None if cache is None else service.CrossTrainerCache(cache),
    )
    if options.job_name is None:
        return dataset
    return require_elements(
        dataset,
        f"job {options.job_name} of pipeline {pipeline} has no batches left: it has ended, or its "
        "other trainers have read them all; use another job_name",
    )


def _element_finisher(
    spec: PipelineSpec,
    registered: RegisteredDataset,
    metadata_spec: dict[str, Any],
    options: DistributeOptions,
) -> Callable[[Any, Any], Any]:
    """Returns a function that finishes an element of the dataset and arranges it for Keras."""
    names = [field.name for field in finished_spec(spec.wire_spec, spec.finish_transforms)]
    if options.sample_ids and (SAMPLE_IDS in names or SAMPLE_IDS not in metadata_spec):
        raise InvalidRequestError(
            f"sample_ids: samples of pipeline {spec.name!r} have no ids, because its source is a "
            f"dataset, or already have a field {SAMPLE_IDS!r}; leave out sample_ids"
        )
    names += [SAMPLE_IDS] * options.sample_ids
    to_keras_element = keras_arranger(names, options.label, options.mask)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def finish_element(fields: dict[str, tf.Tensor], metadata: dict[str, tf.Tensor]) -> Any:
        slots_mask = metadata["mask"] if registered.may_mask or options.mask else None
        batch = finish(fields, spec.finish_transforms, slots_mask)
        if options.sample_ids:
            batch[SAMPLE_IDS] = metadata[SAMPLE_IDS]
        if slots_mask is not None and not options.mask:
            batch = {name: tf.boolean_mask(x, slots_mask) for name, x in batch.items()}
        return to_keras_element(batch, tf.cast(metadata["mask"], tf.float32))

    return finish_element  # type: ignore[no-any-return]


def _empty_batches(element_spec: Any, count: int) -> tf.data.Dataset:
    """Returns batches of empty slots. After the last batch they complete its step, which TensorFlow
    would otherwise drop; TensorFlow drops any that are left over."""
    fields, metadata = tf.nest.map_structure(lambda spec: tf.constant(zeros(spec)), element_spec)
    if SAMPLE_IDS in metadata:
        metadata[SAMPLE_IDS] -= 1
    return tf.data.Dataset.from_tensors((fields, metadata)).repeat(count)


def require_elements(dataset: tf.data.Dataset, message: str) -> tf.data.Dataset:
    """Raises `InvalidArgumentError` with the message if the dataset has no elements.

    An ended job would otherwise look like one without data. The check runs in the graph: it appends
    a sentinel, asserts that it is not the first element, and removes it.
    """
    spec = dataset.element_spec

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_element(*element: Any) -> Any:
        return True, element[0] if len(element) == 1 else element

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_sentinel(_: tf.Tensor) -> Any:
        return False, tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def assert_not_empty(not_first: tf.Tensor, pair: Any) -> Any:
        is_element, element = pair
        with tf.control_dependencies([tf.debugging.Assert(not_first | is_element, [message])]):
            return tf.constant(True), (tf.identity(is_element), element)

    # Synchronous, or tf.data would parallelize these steps and prefetch.
    elements = dataset.map(as_element, synchronous=True)
    sentinel = tf.data.Dataset.range(1).map(as_sentinel, synchronous=True)
    return take_elements(elements.concatenate(sentinel).scan(tf.constant(False), assert_not_empty))
