"""Elements of a registered dataset: their spec, from the dispatcher and checked."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.shared.errors import ConfigError, ProtocolError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.dataset import RegisteredDataset
from infeed.tensorflow.elements import batch_tensor_spec

_SERVICE = tf.data.experimental.service


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
        f"{registered.dispatcher_address} differs from the infeed server's description: its "
        f"elements are {stored}, not {(fields, required | indexed)}",
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
