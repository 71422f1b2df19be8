"""Dataset elements: the specs of fields in a batch and of registered datasets."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.shared.errors import ConfigError, ProtocolError
from infeed.shared.spec import BYTES, FieldSpec, PipelineSpec
from infeed.shared.spec.dataset import RegisteredDataset

_SERVICE = tf.data.experimental.service


def batch_tensor_spec(field: FieldSpec, slots: int) -> tf.TensorSpec:
    """Returns the tensor spec of a field in a batch: [slots, ...]."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec((slots, *field.shape), dtype)


def disable_auto_shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps distribution strategies from sharding the dataset again, which would lose samples."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def fetch_element_spec(pipeline: PipelineSpec, registered: RegisteredDataset) -> Any:
    """Fetches the element spec of a registered dataset from the dispatcher, and checks it.

    It is a pair `(fields, metadata)`. `metadata` has `epoch` (int64) and `mask` (bool [slots]),
    and if samples have an index also `start` (int64) and `sample_ids` (int64 [slots]).

    Raises `ConfigError` if the dispatcher does not know the dataset, and `ProtocolError` if the
    spec differs from the pipeline's.
    """
    stored = _fetch_stored_spec(pipeline, registered)
    slots = registered.batch_size
    fields = {field.name: batch_tensor_spec(field, slots) for field in pipeline.wire_spec}
    required = {
        "epoch": tf.TensorSpec((), tf.int64),
        "mask": tf.TensorSpec((slots,), tf.bool),
    }
    indexed = {
        "start": tf.TensorSpec((), tf.int64),
        "sample_ids": tf.TensorSpec((slots,), tf.int64),
    }
    for metadata in (required, required | indexed):
        if stored == (fields, metadata):
            return stored
    raise ProtocolError(
        f"the dataset of pipeline {pipeline.name!r} at the dispatcher "
        f"{registered.dispatcher_address} differs from the infeed server's description: "
        f"{_describe_difference(stored, fields, required | indexed)}",
        pipeline=pipeline.name,
        dispatcher=registered.dispatcher_address,
    )


def _fetch_stored_spec(pipeline: PipelineSpec, registered: RegisteredDataset) -> Any:
    address = registered.dispatcher_address
    with tf.init_scope():  # fetch now, even while a graph is built
        try:
            return _SERVICE.from_dataset_id(
                _SERVICE.ShardingPolicy.OFF, f"grpc://{address}", registered.dataset_id
            ).element_spec
        except (ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"the dispatcher at {address} does not know the dataset of pipeline "
                f"{pipeline.name!r} ({registered.dataset_id}): check that this address is the same "
                "dispatcher from here as from the infeed server",
                pipeline=pipeline.name,
                dispatcher=address,
            ) from error


def _describe_difference(stored: Any, fields: dict[str, Any], metadata: dict[str, Any]) -> str:
    if not (isinstance(stored, tuple) and len(stored) == 2):
        return f"its elements are not pairs of fields and metadata, but {stored}"
    for actual, expected in zip(stored, (fields, metadata), strict=True):
        if not isinstance(actual, dict):
            return f"it has {actual} instead of a dict of {', '.join(expected)}"
        for name in sorted(actual.keys() | expected.keys()):
            if actual.get(name) != expected.get(name):
                return f"{name} is {_describe(actual, name)}, not {_describe(expected, name)}"
    return "it has only some of start and sample_ids"


def _describe(specs: dict[str, Any], name: str) -> str:
    if name not in specs:
        return "missing"
    spec = specs[name]
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
        return str(spec)
    sizes = ("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name}[{', '.join(sizes)}]"
