"""Pipelines over a user's own dataset: its elements as batches of one shape."""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from infeed.errors import ConfigError
from infeed_server.pipeline.sequential import SequentialPlan
from infeed_server.pipeline.spread.plan import SpreadPlan, Variant, bounded, digest, spread_spec
from infeed_server.pipeline.spread.refusals import (
    constant_bytes,
    refuse_python_stages,
    require_size,
)
from infeed_server.sources.base import Sample


def spread_elements(plan: SequentialPlan, limit_bytes: int) -> SpreadPlan:
    """The spread plan of a sequential one. Raises `ConfigError`."""
    dataset = plan.source.make(plan.spec.seed)
    refuse_python_stages(plan.source, dataset)
    require_size("source.dataset", constant_bytes(dataset), limit_bytes, _INSTEAD)
    # Positions count samples, also where the user's elements are batches.
    stride = plan.spec.batch_size if plan.batched else 0
    return SpreadPlan(
        spread_spec(plan.spec, stride),
        digest([_graph_hash(plan, dataset)]),
        None if plan.batched else plan.spec.sample_count,
        partial(_dataset, plan),
    )


_INSTEAD = "read it from files inside the dataset function, or "


def _graph_hash(plan: SequentialPlan, dataset: tf.data.Dataset) -> str:
    """TensorFlow's own hash of the graph, in which names and process do not count: it tells
    the paths that the user's function found."""
    try:
        hashed = tf.raw_ops.DatasetFingerprint(input_dataset=dataset._variant_tensor)
    except tf.errors.OpError as error:
        raise ConfigError(
            f"source.dataset: the dataset of {plan.source.label} cannot be sent to the workers of "
            f"the tf.data service: {error.message}; use --engine local",
            stage="source.dataset",
        ) from error
    return str(int(hashed))


def _dataset(plan: SequentialPlan, variant: Variant) -> tf.data.Dataset:
    slots = variant.batch_size
    dataset = plan.source.make(variant.seed)
    if variant.epochs != 1:
        dataset = dataset.repeat(variant.epochs or None)
    if not plan.batched:
        dataset = dataset.batch(slots, drop_remainder=variant.remainder == "drop")
    elif variant.remainder == "drop":
        dataset = dataset.filter(partial(_is_full, slots))
    if variant.hint:
        dataset = dataset.shard(*[tf.data.experimental.SHARD_HINT] * 2)
    return bounded(dataset.map(partial(_whole, plan, slots)).prefetch(2))


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _is_full(slots: int, fields: Sample) -> tf.Tensor:
    return _slots(fields) == slots


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _whole(plan: SequentialPlan, slots: int, fields: Sample) -> tuple[Sample, dict[str, tf.Tensor]]:
    """A batch with `slots` slots, the last of them empty where there are too few samples."""
    count = _slots(fields)
    told = [f"the dataset of {plan.source.label} gave a batch of more than {slots} samples:", count]
    with tf.control_dependencies([tf.debugging.Assert(count <= slots, told)]):
        count = tf.identity(count)

    def padded() -> Sample:
        return {name: _padded(value, slots - count) for name, value in fields.items()}

    whole = tf.cond(count == slots, lambda: dict(fields), padded)
    shaped = {
        field.name: tf.ensure_shape(whole[field.name], [slots, *field.shape])
        for field in plan.spec.wire_spec
    }
    return shaped, {"epoch": tf.constant(0, tf.int64), "mask": tf.range(slots) < count}


def _slots(fields: Sample) -> tf.Tensor:
    return tf.shape(next(iter(fields.values())))[0]


def _padded(value: tf.Tensor, empty: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([[empty], tf.shape(value)[1:]], 0)
    return tf.concat([value, tf.zeros(shape, value.dtype)], 0)
