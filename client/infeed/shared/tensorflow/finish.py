"""Finish transforms in TensorFlow, bit for bit as in NumPy, except subnormal numbers, here 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.spec import (
    NOISE_FACTORS,
    Cast,
    Elementwise,
    Erase,
    FinishTransform,
    MixPairs,
    Normalize,
    OneHot,
    changed_fields,
    numpy_dtype,
    shared_range,
)


def finish(
    fields: dict[str, tf.Tensor], transforms: Sequence[FinishTransform], mask: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Applies the transforms to a batch, and sets empty slots to zero again."""
    result = dict(fields)
    for transform in transforms:
        if isinstance(transform, MixPairs):
            _mix_pairs(transform, result, mask)
        elif isinstance(transform, Erase):
            _erase(transform, result)
        else:
            result[transform.field] = apply(transform, result[transform.field])
    if mask is not None:
        for name in {name for transform in transforms for name in changed_fields(transform)}:
            result[name] = _zero_empty_slots(result[name], mask)
    return result


def apply(transform: Elementwise, x: tf.Tensor) -> tf.Tensor:
    """Applies one transform to one field of any shape."""
    if isinstance(transform, Cast):
        return saturating_cast(x, tf.as_dtype(transform.data_type))
    if isinstance(transform, Normalize):
        return _normalize(transform, tf.cast(x, transform.data_type))
    return _one_hot(transform, x)


def saturating_cast(x: tf.Tensor, data_type: tf.DType) -> tf.Tensor:
    """Converts like `tf.cast`, which saturates or wraps a float depending on its place; here floats
    are clipped to an integer type's range, and NaN becomes 0."""
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


def _mix_pairs(transform: MixPairs, fields: dict[str, tf.Tensor], mask: tf.Tensor | None) -> None:
    """Replaces pixels and labels, or adds the others' labels, and removes the draws."""
    x, labels = fields[transform.field], fields[transform.label]
    draws = fields.pop(transform.draws)[::2]
    if mask is not None:
        is_full = tf.reduce_all(tf.reshape(mask, [-1, 2]), 1, keepdims=True)
        draws *= tf.cast(is_full, draws.dtype)
    share, of_label, *sides = tf.unstack(draws, axis=1)
    own = tf.reshape(x, [-1, 2, *x.shape[1:]])
    other = tf.reverse(own, [1])
    share = tf.cast(tf.reshape(share, [-1, 1, 1, 1, 1]), tf.uint16)
    weighted = tf.cast(own, tf.uint16) * (256 - share) + tf.cast(other, tf.uint16) * share
    mixed = tf.cast(tf.bitwise.right_shift(weighted + 128, tf.constant(8, tf.uint16)), tf.uint8)
    pixels = tf.where(_is_inside(x, sides)[:, tf.newaxis], other, mixed)
    fields[transform.field] = tf.reshape(pixels, tf.shape(x))
    own = tf.reshape(labels, [-1, 2, *labels.shape[1:]])
    other = tf.reverse(own, [1])
    if transform.partner:
        fields[transform.partner] = tf.reshape(other, tf.shape(labels))
        fields[transform.own_share] = tf.repeat(1 - of_label, 2)
        return
    of_other = tf.reshape(of_label, [-1, *[1] * len(labels.shape)])
    mixed = own * (1 - of_other) + other * of_other
    fields[transform.label] = tf.reshape(mixed, tf.shape(labels))


def _erase(transform: Erase, fields: dict[str, tf.Tensor]) -> None:
    """Covers rectangles of pixels, and removes the draws."""
    x = fields[transform.field]
    *sides, seed = tf.unstack(fields.pop(transform.draws), axis=1)
    if transform.value is None:
        numbers = tf.reshape(tf.range(int(np.prod(x.shape[1:]))), x.shape[1:])
        cover = noise(numbers, tf.reshape(seed, [-1, 1, 1, 1]))
    else:
        cover = tf.constant(transform.value, tf.uint8)
    fields[transform.field] = tf.where(_is_inside(x, sides), cover, x)


def noise(numbers: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the noise of `Erase` at values of a picture, by their numbers, both int32."""
    first, second, third = (tf.constant(factor, tf.uint32) for factor in NOISE_FACTORS)
    xor, shift = tf.bitwise.bitwise_xor, tf.bitwise.right_shift
    mixed = xor(tf.bitcast(numbers, tf.uint32) * first, tf.bitcast(seed, tf.uint32))
    mixed = xor(mixed, shift(mixed, tf.constant(15, tf.uint32))) * second
    mixed = xor(mixed, shift(mixed, tf.constant(13, tf.uint32))) * third
    return tf.cast(shift(mixed, tf.constant(24, tf.uint32)), tf.uint8)


def _is_inside(x: tf.Tensor, sides: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether a pixel is between top, left, bottom and right: [slots, height, width, 1]."""
    top, left, bottom, right = (side[:, tf.newaxis, tf.newaxis] for side in sides)
    rows = tf.range(x.shape[1], dtype=top.dtype)[:, tf.newaxis]
    columns = tf.range(x.shape[2], dtype=top.dtype)
    is_inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return is_inside[..., tf.newaxis]


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
