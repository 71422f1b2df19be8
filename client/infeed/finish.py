"""Finish transforms in NumPy: the elementwise tail of a pipeline, run where the batch is used.

The server runs this very code when a consumer asks for `finish="server"`, so both placements
give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from infeed.spec import Array, Cast, FieldSpec, FinishTransform, Normalize, OneHot, Spec, numpy_dtype


def finish(
    arrays: dict[str, Array], transforms: Sequence[FinishTransform], mask: Array
) -> dict[str, Array]:
    """The batch after the transforms, empty slots (`mask` False) zero again.

    The arrays that go in are left as they are; fields that no transform names are passed on.
    """
    result = dict(arrays)
    for transform in transforms:
        result[transform.field] = apply(transform, result[transform.field])
    if transforms and not mask.all():
        for field in {transform.field for transform in transforms}:
            result[field][~mask] = 0
    return result


def apply(transform: FinishTransform, x: Array) -> Array:
    """One transform on one field of any shape; always a new array."""
    if isinstance(transform, Cast):
        return x.astype(numpy_dtype(transform.data_type))
    if isinstance(transform, Normalize):
        return _normalize(transform, x)
    return _one_hot(transform, x)


def finished_spec(spec: Spec, transforms: Sequence[FinishTransform]) -> Spec:
    """The element spec that the transforms make of a wire spec."""
    fields = {field.name: field for field in spec}
    for transform in transforms:
        field = fields[transform.field]
        shape = (*field.shape, transform.depth) if isinstance(transform, OneHot) else field.shape
        fields[field.name] = FieldSpec(field.name, transform.data_type, shape)
    return tuple(fields.values())


def _normalize(transform: Normalize, x: Array) -> Array:
    dtype = numpy_dtype(transform.data_type)
    result = x.astype(dtype)
    if transform.scale is not None:
        np.divide(result, dtype.type(transform.scale), out=result)
    if transform.mean:
        np.subtract(result, _operand(transform.mean, dtype), out=result)
    if transform.std:
        np.divide(result, _operand(transform.std, dtype), out=result)
    return result


def _operand(values: tuple[float, ...], dtype: np.dtype[np.generic]) -> Array:
    return np.asarray(values[0] if len(values) == 1 else values, dtype=dtype)


def _one_hot(transform: OneHot, x: Array) -> Array:
    dtype = numpy_dtype(transform.data_type)
    labels = np.arange(transform.depth)
    hot = x[..., np.newaxis] == labels
    return np.where(hot, dtype.type(transform.on_value), dtype.type(transform.off_value))


__all__ = ["apply", "finish", "finished_spec"]
