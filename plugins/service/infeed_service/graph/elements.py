"""Sequential pipelines: the elements of a user's dataset as batches of one shape."""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.sources.base import Sample
from infeed_service.graph.plan import (
    DataServicePlan,
    Variant,
    data_service_spec,
    short_hash,
    with_ram_budget,
)
from infeed_service.graph.unsupported import refuse_python_stages
from infeed_service.sequential.plan import SequentialPlan


def plan_elements(plan: SequentialPlan) -> DataServicePlan:
    """Plans a sequential pipeline for the workers. Raises `ConfigError`."""
    dataset = plan.source.make(plan.spec.seed)
    refuse_python_stages(plan.source, dataset)
    try:
        # Independent of node names and the process, it covers the paths that the user's function
        # found.
        graph_hash = tf.raw_ops.DatasetFingerprint(input_dataset=dataset._variant_tensor)
    except tf.errors.OpError as error:
        raise ConfigError(
            f"the dataset of {plan.source.label} cannot be sent to the workers of the tf.data "
            f"service: {error.message}; use --engine local",
            at=("source", "dataset"),
        ) from error
    # Positions count samples, even if the user's elements are batches.
    stride = plan.spec.batch_size if plan.batched else 0
    return DataServicePlan(
        # Each worker makes batches of the elements that it reads itself.
        data_service_spec(plan.spec, stride, remainder_scope="worker"),
        short_hash([str(int(graph_hash))]),
        None if plan.batched else plan.spec.sample_count,
        partial(_build, plan),
    )


def _build(plan: SequentialPlan, variant: Variant) -> tf.data.Dataset:
    slots, drop = variant.batch_size, variant.remainder == "drop"
    dataset = plan.source.make(variant.seed)
    if variant.epochs != 1:
        dataset = dataset.repeat(variant.epochs or None)
    if not plan.batched:
        dataset = dataset.batch(slots, drop_remainder=drop)
    elif drop:
        dataset = dataset.filter(partial(_is_full, slots))
    if variant.shard_hint:
        dataset = dataset.shard(*[tf.data.experimental.SHARD_HINT] * 2)
    return with_ram_budget(dataset.map(partial(_pad_batch, plan, slots)).prefetch(2))


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _is_full(slots: int, fields: Sample) -> tf.Tensor:
    return _sample_count(fields) == slots


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _pad_batch(
    plan: SequentialPlan, slots: int, fields: Sample
) -> tuple[Sample, dict[str, tf.Tensor]]:
    """Pads a batch to `slots` slots and returns its fields and metadata."""
    count = _sample_count(fields)
    message = f"the dataset of {plan.source.label} gave a batch of more than {slots} samples:"
    with tf.control_dependencies([tf.debugging.Assert(count <= slots, [message, count])]):
        count = tf.identity(count)
    batch = {}
    for field in plan.spec.wire_spec:
        value = fields[field.name]
        padded = partial(_pad, value, slots - count)
        full = tf.cond(count == slots, partial(tf.identity, value), padded)
        batch[field.name] = tf.ensure_shape(full, [slots, *field.shape])
    return batch, {"epoch": tf.constant(0, tf.int64), "mask": tf.range(slots) < count}


def _pad(value: tf.Tensor, empty_slots: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([[empty_slots], tf.shape(value)[1:]], 0)
    return tf.concat([value, tf.zeros(shape, value.dtype)], 0)


def _sample_count(fields: Sample) -> tf.Tensor:
    return tf.shape(next(iter(fields.values())))[0]
