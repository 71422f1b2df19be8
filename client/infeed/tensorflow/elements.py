"""Dataset elements: the specs of fields in a batch, and options of every dataset."""

from __future__ import annotations

import tensorflow as tf

from infeed.shared.spec import BYTES, FieldSpec


def batch_tensor_spec(field: FieldSpec, slots: int) -> tf.TensorSpec:
    """Returns the tensor spec of a field in a batch: [slots, ...]."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec((slots, *field.shape), dtype)


def disable_auto_shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps distribution strategies from sharding the dataset again, which would lose samples."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
