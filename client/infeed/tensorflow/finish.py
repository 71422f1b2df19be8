"""Finish transforms in TensorFlow: the same bits as `infeed.finish` has in NumPy.

TensorFlow makes subnormal results 0. A float that the integer type of a cast cannot hold, and one
that is not a number, becomes what the processor makes of it, as in C: no value is promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.spec import Cast, FinishTransform, Normalize, OneHot, numpy_dtype


def finish(
    fields: dict[str, tf.Tensor], transforms: Sequence[FinishTransform], mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """The batch after the transforms, empty slots zero again.

    `mask` is bool [slots], False for an empty slot; None where none can be empty. Fields that no
    transform names are passed on.
    """
    result = dict(fields)
    for transform in transforms:
        result[transform.field] = apply(transform, result[transform.field])
    if mask is not None:
        for name in {transform.field for transform in transforms}:
            result[name] = _emptied(result[name], mask)
    return result


def apply(transform: FinishTransform, x: tf.Tensor) -> tf.Tensor:
    """One transform on one field of any shape."""
    if isinstance(transform, Cast):
        return tf.cast(x, transform.data_type)
    if isinstance(transform, Normalize):
        return _normalize(transform, tf.cast(x, transform.data_type))
    return _one_hot(transform, x)


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
    # A label of 2^63 or more becomes negative: out of range, as it was.
    return tf.one_hot(tf.cast(x, tf.int64), transform.depth, tf.constant(on), tf.constant(off))


def _emptied(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Zeros in the slots whose mask is False; a batch that is full costs nothing."""

    def zeroed() -> tf.Tensor:
        held = tf.reshape(mask, (-1, *[1] * (len(x.shape) - 1)))
        return tf.where(held, x, tf.zeros((), x.dtype))

    return tf.cond(tf.reduce_all(mask), lambda: tf.identity(x), zeroed)


def _operand(values: tuple[float, ...], data_type: str) -> tf.Tensor:
    rounded = _rounded(values[0] if len(values) == 1 else values, data_type)
    # TensorFlow's optimiser turns x / constant into x * (1 / constant) and merges neighbouring
    # constants, which rounds differently from NumPy; it leaves a value alone that might be fed.
    return tf.raw_ops.PlaceholderWithDefault(input=tf.constant(rounded), shape=rounded.shape)


def _rounded(values: Any, data_type: str) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(numpy_dtype(data_type))


__all__ = ["apply", "finish"]
