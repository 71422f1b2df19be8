"""How a batch becomes one element of a `tf.data.Dataset`, as Keras takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed.errors import InvalidRequestError
from infeed.spec import BYTES, FieldSpec

Arrange = Callable[[dict[str, Any], Any], Any]
"""From the fields and a weight for each slot; the same for tensors and their specs."""


def arrangement(names: list[str], label: str | None, mask: bool) -> Arrange:
    """`(x, y)`: y is the field `label`, x the only other one or a dict of the others. Without such
    a field, or with `label=None`, the dict of all. With `mask` the weight comes last: `(x, y,
    weight)` or `(dict, weight)`.

    Raises `InvalidRequestError` where the label is the only field.
    """
    if label is None or label not in names:
        return lambda fields, weight: (fields, weight) if mask else fields
    rest = [name for name in names if name != label]
    if not rest:
        raise InvalidRequestError(
            f"the pipeline has no field but {label!r}, so nothing is left for the input; "
            "pass label=None"
        )

    def arrange(fields: dict[str, Any], weight: Any) -> Any:
        inputs = fields[rest[0]] if len(rest) == 1 else {name: fields[name] for name in rest}
        return (inputs, fields[label], weight) if mask else (inputs, fields[label])

    return arrange


def tensor_spec(field: FieldSpec, slots: int) -> tf.TensorSpec:
    """Of a whole batch: [slots, ...]."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec((slots, *field.shape), dtype)


def unsharded(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same, which no distribution strategy shards again: that would lose samples."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


__all__ = ["Arrange", "arrangement", "tensor_spec", "unsharded"]
