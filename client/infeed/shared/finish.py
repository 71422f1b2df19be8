"""Finish transforms in NumPy: the tail of a pipeline, the same bits at both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from infeed.shared.errors import ProtocolError
from infeed.shared.spec import (
    NOISE_FACTORS,
    Array,
    Drawing,
    Elementwise,
    Erase,
    FieldSpec,
    FinishTransform,
    MixPairs,
    Normalize,
    OneHot,
    Spec,
    changed_fields,
    numpy_dtype,
    read_fields,
    shared_range,
)

Empty = Callable[[tuple[int, ...], np.dtype[np.generic]], Array]
"""Returns an uninitialised array of a shape and a type."""

_BLOCK_BYTES = 1 << 18
"""Bytes of a block transformed at a time; larger blocks would not stay in the processor's cache."""


def finish(
    arrays: dict[str, Array],
    transforms: Sequence[FinishTransform],
    mask: Array,
    empty: Empty = np.empty,
    values: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Array]:
    """Returns the arrays after the transforms. Empty slots (`mask` False) are set to the field's
    number in `values`, or back to zero."""
    result = dict(arrays)
    for transform in transforms:
        if isinstance(transform, MixPairs):
            _mix_pairs(transform, result, mask, empty)
        elif isinstance(transform, Erase):
            _erase(transform, result, empty)
        else:
            result[transform.field] = apply(transform, result[transform.field], empty)
    if not mask.all():
        changed = {field for transform in transforms for field in changed_fields(transform)}
        for field in values.keys() - changed:
            result[field] = result[field].copy()  # the original may be shared memory
        for field in {*values, *changed}:
            result[field][~mask] = values.get(field, 0)
    return result


def apply(transform: Elementwise, x: Array, empty: Empty = np.empty) -> Array:
    """Returns a new array: one transform applied to one field of any shape."""
    # As in TensorFlow, overflow and NaN cause no warning.
    with np.errstate(all="ignore"):
        if isinstance(transform, OneHot):
            return _one_hot(transform, x)
        result = empty(x.shape, numpy_dtype(transform.data_type))
        for rows, finished in _blocks(x, result):
            _cast(rows, finished)
            if isinstance(transform, Normalize):
                _normalize(transform, finished)
        return result


def finished_spec(spec: Spec, transforms: Sequence[FinishTransform]) -> Spec:
    """Returns the element spec that the transforms produce from a wire spec."""
    fields = {field.name: field for field in spec}
    for transform in transforms:
        for name in read_fields(transform):
            if name not in fields:
                raise ProtocolError(
                    f"finish transform of unknown field {name!r}; the fields are "
                    f"{', '.join(fields)}"
                )
        if isinstance(transform, Drawing):
            fields.pop(transform.draws)
            if isinstance(transform, MixPairs) and transform.partner:
                other, share = transform.partner, transform.own_share
                fields[other] = replace(fields[transform.label], name=other)
                fields[share] = FieldSpec(share, "float32")
            continue
        field = fields[transform.field]
        shape = (*field.shape, transform.depth) if isinstance(transform, OneHot) else field.shape
        fields[field.name] = FieldSpec(field.name, transform.data_type, shape)
    return tuple(fields.values())


def _mix_pairs(transform: MixPairs, fields: dict[str, Array], mask: Array, empty: Empty) -> None:
    """Replaces pixels and labels, or adds the others' labels, and removes the draws."""
    x, labels = fields[transform.field], fields[transform.label]
    draws = fields.pop(transform.draws)[::2] * mask.reshape(-1, 2).all(1, keepdims=True)
    mixed = fields[transform.field] = empty(x.shape, x.dtype)
    for first, drawn in zip(range(0, len(x), 2), draws.astype(np.int64), strict=True):
        share, _, top, left, bottom, right = drawn.tolist()
        for own, other in ((first, first + 1), (first + 1, first)):
            mixed[own] = x[own]
            if share:
                weighted = x[own] * np.uint16(256 - share) + x[other] * np.uint16(share)
                mixed[own] = (weighted + np.uint16(128)) >> 8
            mixed[own, top:bottom, left:right] = x[other, top:bottom, left:right]
    # A copy even of one pair, where reshape alone gives a view.
    others = labels.reshape(-1, 2, *labels.shape[1:])[:, ::-1].copy().reshape(labels.shape)
    of_other = draws[:, 1].repeat(2)
    if transform.partner:
        fields |= {transform.partner: others, transform.own_share: 1 - of_other}
        return
    of_other = of_other.reshape(-1, *[1] * (labels.ndim - 1))
    fields[transform.label] = labels * (1 - of_other) + others * of_other


def _erase(transform: Erase, fields: dict[str, Array], empty: Empty) -> None:
    """Covers rectangles of pixels, and removes the draws."""
    x, draws = fields[transform.field], fields.pop(transform.draws)
    erased = fields[transform.field] = empty(x.shape, x.dtype)
    np.copyto(erased, x)
    numbers = np.arange(erased[:1].size, dtype=np.uint32).reshape(x.shape[1:])
    for picture, (top, left, bottom, right, seed) in zip(erased, draws.tolist(), strict=True):
        window = np.s_[top:bottom, left:right]
        value = transform.value
        picture[window] = _noise(numbers[window], seed) if value is None else value


def _noise(numbers: Array, seed: int) -> Array:
    first, second, third = map(np.uint32, NOISE_FACTORS)
    mixed: Array = (numbers * first) ^ np.uint32(seed & 0xFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * second
    mixed = (mixed ^ (mixed >> np.uint32(13))) * third
    mixed >>= np.uint32(24)
    return mixed


def _blocks(x: Array, result: Array) -> Iterator[tuple[Array, Array]]:
    """Yields matching blocks that fit into the processor's cache, so that memory is read once."""
    if not x.ndim:
        yield x, result
        return
    rows = max(1, _BLOCK_BYTES * len(x) // max(result.nbytes, 1))
    for begin in range(0, len(x), rows):
        yield x[begin : begin + rows], result[begin : begin + rows]


def _cast(x: Array, result: Array) -> None:
    """Converts `x`; an integer type clips values out of its range, and NaN becomes 0."""
    if x.dtype == np.float64 and result.dtype == np.float16:
        # TensorFlow rounds such a number twice.
        x = x.astype(np.float32)
    if result.dtype.kind not in "iu" or np.can_cast(x.dtype, result.dtype):
        np.copyto(result, x, casting="unsafe")
        return
    low, high = shared_range(x.dtype, result.dtype)
    inside = np.minimum(np.maximum(x, low), high)
    if x.dtype.kind in "iu":
        np.copyto(result, inside, casting="unsafe")
        return
    np.copyto(result, np.where(np.isnan(x), x.dtype.type(0), inside), casting="unsafe")
    # A float type may not have the limits of the integer type.
    limits = np.iinfo(result.dtype)
    if int(high) != limits.max:
        result[x > high] = limits.max
    if int(low) != limits.min:
        result[x < low] = limits.min


def _normalize(transform: Normalize, x: Array) -> None:
    if transform.scale is not None:
        np.divide(x, x.dtype.type(transform.scale), out=x)
    if transform.mean:
        np.subtract(x, _operand(transform.mean, x.dtype), out=x)
    if transform.std:
        np.divide(x, _operand(transform.std, x.dtype), out=x)


def _operand(values: tuple[float, ...], dtype: np.dtype[np.generic]) -> Array:
    return np.asarray(values[0] if len(values) == 1 else values, dtype=dtype)


def _one_hot(transform: OneHot, x: Array) -> Array:
    dtype = numpy_dtype(transform.data_type)
    labels = np.arange(transform.depth)
    hot = x[..., np.newaxis] == labels
    on, off = np.asarray([transform.on_value, transform.off_value]).astype(dtype)
    result: Array = np.where(hot, on, off)
    return result
