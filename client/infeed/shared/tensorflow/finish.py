"""Finish transforms in TensorFlow, bit for bit as in NumPy, but for subnormal numbers, here 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.spec import Cast, FinishTransform, Normalize, OneHot, numpy_dtype, shared_range


def finish(
    fields: dict[str, tf.Tensor], transforms: Sequence[FinishTransform], mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Applies the transforms to a batch, and sets empty slots to zero again."""
    result = dict(fields)
    for transform in transforms:
        result[transform.field] = apply(transform, result[transform.field])
    if mask is not None:
        for name in {transform.field for transform in transforms}:
            result[name] = _zero_empty_slots(result[name], mask)
    return result


def apply(transform: FinishTransform, x: tf.Tensor) -> tf.Tensor:
    """Applies one transform to one field of any shape."""
    if isinstance(transform, Cast):
        return saturating_cast(x, tf.as_dtype(transform.data_type))
    if isinstance(transform, Normalize):
        return _normalize(transform, tf.cast(x, transform.data_type))
    return _one_hot(transform, x)


def saturating_cast(x: tf.Tensor, data_type: tf.DType) -> tf.Tensor:
    """Converts as `tf.cast`, which saturates or wraps a float depending on its place; here the
    nearest value represents one out of an integer's range, and 0 represents NaN."""
    if not data_type.is_integer:
        return tf.cast(x, data_type)
    source, target = (numpy_dtype(kind.name) for kind in (x.dtype, data_type))
    if np.can_cast(source, target):
        return tf.cast(x, data_type)
    low, high = shared_range(source, target)
    inside = tf.minimum(tf.maximum(x, low), high)
    if x.dtype.is_integer:
        return tf.cast(inside, data_type)
    result = tf.cast(tf.where(tf.math.is_nan(x), tf.zeros((), x.dtype), inside), data_type)
    # A float type may not have the limits of the integer type.
    if int(high) != data_type.max:
        result = tf.where(x > high, tf.constant(data_type.max, data_type), result)
    if int(low) != data_type.min:
        result = tf.where(x < low, tf.constant(data_type.min, data_type), result)
    return result


def _normalize(transform: Normalize, x: tf.Tensor) -> tf.Tensor:
    if transform.scale is not None:
        x /= _operand((transform.scale,), transform.data_type)
    if transform.mean:
        x -= _operand(transform.mean, transform.data_type)
    if transform.std:
        x /= _operand(transform.std, transform.data_type)
    return x


def _one_hot(transform: OneHot, x: tf.Tensor) -> tf.Tensor:
    on, off = _rounded([transform.on_value, transform.off_value], transform.data_type)
    # A label of 2^63 or more becomes negative, and stays out of range.
    return tf.one_hot(tf.cast(x, tf.int64), transform.depth, tf.constant(on), tf.constant(off))


def _zero_empty_slots(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sets slots to zero where the mask is False; copies nothing if the batch is full."""

    def zeroed() -> tf.Tensor:
        broadcast = tf.reshape(mask, (-1, *[1] * (len(x.shape) - 1)))
        return tf.where(broadcast, x, tf.zeros((), x.dtype))

    return tf.cond(tf.reduce_all(mask), lambda: tf.identity(x), zeroed)


def _operand(values: tuple[float, ...], data_type: str) -> tf.Tensor:
    rounded = _rounded(values[0] if len(values) == 1 else values, data_type)
    # TensorFlow's optimizer turns x / constant into x * (1 / constant) and merges neighbouring
    # constants, which rounds differently from NumPy. It does not change a placeholder.
    return tf.raw_ops.PlaceholderWithDefault(input=tf.constant(rounded), shape=rounded.shape)


def _rounded(values: Any, data_type: str) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(numpy_dtype(data_type))
