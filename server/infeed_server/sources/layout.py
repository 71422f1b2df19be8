"""The layout of columns: what a source's `read` returns, compared with its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


class Layout:
    """The names, types and shapes of a source's columns."""

    def __init__(self, columns: Mapping[str, tf.TensorSpec]) -> None:
        self._columns = {
            name: (np.dtype(spec.dtype.as_numpy_dtype), spec.shape)
            for name, spec in columns.items()
        }

    def problem(self, found: Any, count: int) -> str:
        """Describes what is wrong with the columns of `count` samples; empty if nothing is. Checks
        arrays, not single samples."""
        if not isinstance(found, dict):
            return f"returned a {type(found).__name__}, not a dict of arrays"
        if found.keys() != self._columns.keys():
            names = ", ".join(map(str, found)) or "none"
            return f"returned the columns {names}; columns declares {', '.join(self._columns)}"
        for name, (dtype, shape) in self._columns.items():
            rows = found[name]
            if not isinstance(rows, np.ndarray):
                return f"returned the column {name!r} as a {type(rows).__name__}, not an array"
            is_like = rows.shape[:1] == (count,) and shape.is_compatible_with(rows.shape[1:])
            if rows.dtype != dtype or not is_like:  # types of different byte orders differ
                dims = ["..."] if shape.rank is None else shape.as_list()
                declared = ", ".join("?" if size is None else str(size) for size in (count, *dims))
                return (
                    f"returned the column {name!r} as {rows.dtype}{[*rows.shape]}; for "
                    f"{count} samples, columns declares {dtype}[{declared}]"
                )
        return ""
