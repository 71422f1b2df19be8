"""Finish transforms in NumPy: the elementwise tail of a pipeline, run where the batch is used.

The server runs this very code when a consumer asks for `finish="server"`, so both placements
give the same bits. So does TensorFlow, which infeed_server's transforms use where a step stays in
the graph, save that it makes subnormal results 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from infeed.errors import ProtocolError
from infeed.spec import (
    Array,
    FieldSpec,
    FinishTransform,
    Normalize,
    OneHot,
    Spec,
    numpy_dtype,
)

Empty = Callable[[tuple[int, ...], np.dtype[np.generic]], Array]
"""Makes an uninitialised array of a shape and a type."""

_BLOCK_BYTES = 1 << 18


def finish(
    arrays: dict[str, Array],
    transforms: Sequence[FinishTransform],
    mask: Array,
    empty: Empty = np.empty,
) -> dict[str, Array]:
    """The batch after the transforms, empty slots (`mask` False) zero again.

    The arrays that go in are left as they are; fields that no transform names are passed on.
    `empty` makes the memory for the large results.
    """
    result = dict(arrays)
    for transform in transforms:
        result[transform.field] = apply(transform, result[transform.field], empty)
    if transforms and not mask.all():
        for field in {transform.field for transform in transforms}:
            result[field][~mask] = 0
    return result


def apply(transform: FinishTransform, x: Array, empty: Empty = np.empty) -> Array:
    """One transform on one field of any shape; always a new array."""
    # What overflows or is not a number stays so without a warning, as it does in TensorFlow.
    with np.errstate(all="ignore"):
        if isinstance(transform, OneHot):
            return _one_hot(transform, x)
        result = empty(x.shape, numpy_dtype(transform.data_type))
        for rows, finished in _blocks(x, result):
            np.copyto(finished, rows, casting="unsafe")
            if isinstance(transform, Normalize):
                _normalize(transform, finished)
        return result


def finished_spec(spec: Spec, transforms: Sequence[FinishTransform]) -> Spec:
    """The element spec that the transforms make of a wire spec.

    Raises `ProtocolError` for a transform of a field that is not there.
    """
    fields = {field.name: field for field in spec}
    for transform in transforms:
        if transform.field not in fields:
            raise ProtocolError(
                f"a finish transform of field {transform.field!r}, where the fields are "
                f"{', '.join(fields)}"
            )
        field = fields[transform.field]
        shape = (*field.shape, transform.depth) if isinstance(transform, OneHot) else field.shape
        fields[field.name] = FieldSpec(field.name, transform.data_type, shape)
    return tuple(fields.values())


def _blocks(x: Array, result: Array) -> Iterator[tuple[Array, Array]]:
    """Pieces of both that fit the processor's cache, so that several steps cost one of memory."""
    if not x.ndim:
        yield x, result
        return
    rows = max(1, _BLOCK_BYTES * len(x) // max(result.nbytes, 1))
    for begin in range(0, len(x), rows):
        yield x[begin : begin + rows], result[begin : begin + rows]


def _normalize(transform: Normalize, x: Array) -> None:
    """In place."""
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


__all__ = ["apply", "finish", "finished_spec"]
