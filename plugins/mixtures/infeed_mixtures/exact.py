"""Exact values of samples, without wrapping or rounding: integers of any size, float64, and texts
as UTF-8 bytes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
"""One value per sample, or one for all: bool, int64, float64, or Python's int and bytes."""

_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)


def exact(values: Values) -> Values:
    """Returns the values in a type that neither wraps nor rounds them. Raises `ValueError` for
    values that are neither numbers nor texts."""
    kind = values.dtype.kind
    if kind == "b":
        return values
    if kind in "iu":
        return _integers(values)
    if kind in "fV" and values.dtype.names is None:
        return values.astype(np.float64)
    items = values.astype(object).reshape(-1).tolist()
    if all(type(item) is int for item in items):
        return _integers(values)
    if not all(isinstance(item, str | bytes) for item in items):
        raise ValueError(f"has a field of {values.dtype}; only numbers and texts are supported")
    texts = np.empty(len(items), object)
    texts[:] = [item.encode() if isinstance(item, str) else item for item in items]
    return texts.reshape(values.shape)


def is_text(values: Values) -> bool:
    return values.dtype == object and values.size > 0 and isinstance(values.flat[0], bytes)


def arithmetic(operation: Callable[..., Values], ours: Values, theirs: Values) -> Values:
    """Returns exact integers or float64. Raises `ValueError` if there is no result."""
    if is_text(ours) or is_text(theirs):
        raise ValueError("has a text in + - * / // %, which take numbers, such as length(x)")
    if operation in _DIVISIONS and (zeros := np.count_nonzero(theirs == 0)):
        raise ValueError(
            f"divides by 0, {zeros} times; exclude 0 first, as in y != 0 and x / y > 1"
        )
    if operation is operator.truediv or "f" in (ours.dtype.kind, theirs.dtype.kind):
        with np.errstate(all="ignore"):
            return np.asarray(operation(_floats(ours), _floats(theirs)))
    ours, theirs = (
        _integers(one.astype(int) if one.dtype == bool else one) for one in (ours, theirs)
    )
    if (_largest(ours) + 1) * (_largest(theirs) + 1) >= 1 << 63:
        ours, theirs = ours.astype(object), theirs.astype(object)
    return np.asarray(operation(ours, theirs), ours.dtype)


def _integers(values: Values) -> Values:
    """Returns integers as int64, or as Python's if one of them does not fit."""
    fits = not values.size or (int(values.min()) >= -(1 << 63) and int(values.max()) < 1 << 63)
    return values.astype(np.int64 if fits else object, copy=False)


def _largest(integers: Values) -> int:
    return max(abs(int(integers.min())), abs(int(integers.max()))) if integers.size else 0


def _floats(values: Values) -> Values:
    try:
        return values.astype(np.float64)
    except OverflowError:
        raise ValueError("has an integer beyond the range of floats") from None
