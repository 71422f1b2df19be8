"""What a registered data set is made of: pairs of the batch's fields and what is known of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.errors import ConfigError, ProtocolError
from infeed.registered import RegisteredDataset
from infeed.spec import PipelineSpec
from infeed.tensorflow.arrange import tensor_spec

_SERVICE = tf.data.experimental.service


def element_spec(pipeline: PipelineSpec, registered: RegisteredDataset) -> Any:
    """The pair of specs, `(fields, about)`, that the dispatcher keeps for the data set.

    `about` has `epoch` (int64) and `mask` (bool [slots]), and where samples have an index `start`
    (int64) and `sample_ids` (int64 [slots]).

    Raises `ConfigError` when the dispatcher does not know the data set, and `ProtocolError` when
    it is another than the pipeline's description says.
    """
    stored = _stored(pipeline, registered)
    slots = registered.batch_size
    fields = {field.name: tensor_spec(field, slots) for field in pipeline.wire_spec}
    always = {
        "epoch": tf.TensorSpec((), tf.int64),
        "mask": tf.TensorSpec((slots,), tf.bool),
    }
    indexed = {
        "start": tf.TensorSpec((), tf.int64),
        "sample_ids": tf.TensorSpec((slots,), tf.int64),
    }
    for about in (always, always | indexed):
        if stored == (fields, about):
            return stored
    raise ProtocolError(
        f"the data set of pipeline {pipeline.name!r} at the dispatcher "
        f"{registered.dispatcher_address} is not what the infeed server describes: "
        f"{_difference(stored, fields, always | indexed)}",
        pipeline=pipeline.name,
        dispatcher=registered.dispatcher_address,
    )


def _stored(pipeline: PipelineSpec, registered: RegisteredDataset) -> Any:
    address = registered.dispatcher_address
    with tf.init_scope():  # it is asked for now, also where a graph is being drawn
        try:
            return _SERVICE.from_dataset_id(
                _SERVICE.ShardingPolicy.OFF, f"grpc://{address}", registered.dataset_id
            ).element_spec
        except (ValueError, tf.errors.OpError) as error:
            raise ConfigError(
                f"the dispatcher that answers at {address} does not know the data set of pipeline "
                f"{pipeline.name!r} ({registered.dataset_id}): does that address lead to the same "
                "dispatcher from here as from the infeed server?",
                pipeline=pipeline.name,
                dispatcher=address,
            ) from error


def _difference(stored: Any, fields: dict[str, Any], about: dict[str, Any]) -> str:
    if not (isinstance(stored, tuple) and len(stored) == 2):
        return f"its elements are no pairs of fields and what is known of them, but {stored}"
    for found, expected in zip(stored, (fields, about), strict=True):
        if not isinstance(found, dict):
            return f"it has {found}, where a dict of {', '.join(expected)} was expected"
        for name in sorted(found.keys() | expected.keys()):
            if found.get(name) != expected.get(name):
                return f"{name} is {_said(found, name)}, not {_said(expected, name)}"
    return "it has only some of start and sample_ids"


def _said(specs: dict[str, Any], name: str) -> str:
    if name not in specs:
        return "missing"
    spec = specs[name]
    return f"{spec.dtype.name}{spec.shape}" if isinstance(spec, tf.TensorSpec) else str(spec)


__all__ = ["element_spec"]
