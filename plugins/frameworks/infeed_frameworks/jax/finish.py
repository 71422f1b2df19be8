"""Finish transforms in JAX, for a `jit` function: as in `infeed.shared.finish`, on the device.

Each value is within one unit in the last place of NumPy's. Types of 64 bits have 32 bits, unless
`jax_enable_x64` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from infeed.shared.spec import (
    NOISE_FACTORS,
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

Barrier: TypeAlias = Callable[[jax.Array], jax.Array]

_barrier: Barrier = jax.lax.optimization_barrier
"""Hides a value from XLA's simplifications; costs no copy."""


def finish(
    fields: Mapping[str, jax.Array],
    transforms: Sequence[FinishTransform],
    mask: jax.Array | None,
) -> dict[str, jax.Array]:
    """Applies the transforms to a batch, and sets empty slots to zero again.

    `mask` is bool [slots], False for an empty slot; None if none can be empty. Fields without a
    transform are returned as they are.
    """
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
            x = result[name]
            kept = mask.reshape(-1, *[1] * (x.ndim - 1))
            result[name] = jnp.where(kept, x, jnp.zeros((), x.dtype))
    return result


def apply(transform: Elementwise, x: jax.Array) -> jax.Array:
    """Applies one transform to one field of any shape."""
    dtype = jax.dtypes.canonicalize_dtype(numpy_dtype(transform.data_type))
    if isinstance(transform, OneHot):
        hot = x[..., None] == jnp.arange(transform.depth, dtype=x.dtype)
        if transform.depth - 1 > np.iinfo(x.dtype).max:
            # Classes beyond the label's type would wrap around.
            hot &= jnp.arange(transform.depth) <= int(np.iinfo(x.dtype).max)
        on, off = _rounded([transform.on_value, transform.off_value], dtype)
        return jnp.where(hot, on, off)
    x = saturating_cast(x, dtype)
    return _normalize(transform, x) if isinstance(transform, Normalize) else x


def _mix_pairs(transform: MixPairs, fields: dict[str, jax.Array], mask: jax.Array | None) -> None:
    """Replaces pixels and labels, or adds the others' labels, and removes the draws. Pairs stay on
    their device where it has an even number of slots."""
    x, labels = fields[transform.field], fields[transform.label]
    draws = fields.pop(transform.draws)[::2]
    if mask is not None:
        draws *= mask.reshape(-1, 2).all(1, keepdims=True)
    share, of_label, *sides = draws.T
    own = x.reshape(-1, 2, *x.shape[1:])
    other = own[:, ::-1]
    share = share.astype(jnp.uint16).reshape(-1, 1, 1, 1, 1)
    weighted = own.astype(jnp.uint16) * (256 - share) + other.astype(jnp.uint16) * share
    mixed = ((weighted + 128) >> 8).astype(jnp.uint8)
    pixels = jnp.where(_is_inside(x, sides)[:, None], other, mixed)
    fields[transform.field] = pixels.reshape(x.shape)
    own = labels.reshape(-1, 2, *labels.shape[1:])
    other = own[:, ::-1]
    if transform.partner:
        fields[transform.partner] = other.reshape(labels.shape)
        fields[transform.own_share] = jnp.repeat(1 - of_label, 2)
        return
    of_other = of_label.reshape(-1, *[1] * labels.ndim)
    fields[transform.label] = (own * (1 - of_other) + other * of_other).reshape(labels.shape)


def _erase(transform: Erase, fields: dict[str, jax.Array]) -> None:
    """Covers rectangles of pixels, and removes the draws."""
    x = fields[transform.field]
    *sides, seed = fields.pop(transform.draws).T
    cover: Any = transform.value
    if cover is None:
        numbers = jnp.arange(np.prod(x.shape[1:]), dtype=jnp.uint32).reshape(x.shape[1:])
        first, second, third = map(jnp.uint32, NOISE_FACTORS)
        mixed = (numbers * first) ^ seed.astype(jnp.uint32)[:, None, None, None]
        mixed = (mixed ^ (mixed >> 15)) * second
        cover = ((mixed ^ (mixed >> 13)) * third) >> 24
    fields[transform.field] = jnp.where(_is_inside(x, sides), jnp.asarray(cover, x.dtype), x)


def _is_inside(x: jax.Array, sides: Sequence[jax.Array]) -> jax.Array:
    """Returns whether a pixel is between top, left, bottom and right: [slots, height, width, 1]."""
    top, left, bottom, right = (side[:, None, None] for side in sides)
    rows, columns = jnp.arange(x.shape[1])[:, None], jnp.arange(x.shape[2])
    is_inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return is_inside[..., None]


def saturating_cast(x: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    """Converts; values out of an integer type's range become its nearest one, and NaN becomes 0."""
    if x.dtype == np.float64 and dtype == np.float16:
        x = x.astype(np.float32)  # like NumPy and TensorFlow, which round twice
    if dtype.kind not in "iu" or np.can_cast(x.dtype, dtype):
        return x.astype(dtype)
    low, high = shared_range(np.dtype(x.dtype), dtype)
    inside = jnp.clip(x, low, high)
    if x.dtype.kind in "iu":
        return inside.astype(dtype)
    result = jnp.where(jnp.isnan(x), jnp.zeros((), x.dtype), inside).astype(dtype)
    # A float type may not represent the limits of the integer type.
    limits = np.iinfo(dtype)
    if int(high) != limits.max:
        result = jnp.where(x > high, dtype.type(limits.max), result)
    if int(low) != limits.min:
        result = jnp.where(x < low, dtype.type(limits.min), result)
    return result


def _normalize(transform: Normalize, x: jax.Array) -> jax.Array:
    # XLA would multiply by 1 / scale, and merge two divisions into x / (scale * std). Both round
    # differently from NumPy, and a subtraction turns that into hundreds of units in the last place.
    if transform.scale is not None:
        x = _barrier(x / _operand((transform.scale,), x))
    if transform.mean:
        x -= _operand(transform.mean, x)
    if transform.std:
        x /= _operand(transform.std, x)
    return x


def _operand(values: tuple[float, ...], x: jax.Array) -> jax.Array:
    rounded = _rounded(values[0] if len(values) == 1 else values, x.dtype)
    # In the shape of `x`: XLA would move the division of a broadcast to the smaller operand.
    return _barrier(jnp.broadcast_to(rounded, x.shape))


def _rounded(values: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)
