"""Packed columns, which take no memory in rows without a value."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed_server.sources.base import Columns, Sample

_MIN_BYTES = 1024
"""Minimum bytes of a sample's numbers to pack: smaller ones may as well be zeros."""

_UNPACKED = {tf.uint32, tf.uint64}
"""Types that `decode_raw` does not know."""


class PackedColumns:
    """Columns whose large numbers are byte strings; a row without one is empty."""

    def __init__(self, prefix: str, specs: Mapping[str, tf.TensorSpec]) -> None:
        self._specs = {prefix + name: (name, spec) for name, spec in specs.items()}
        self._packed = {column for column, (_, spec) in self._specs.items() if _is_large(spec)}
        self.columns = {
            column: tf.TensorSpec((), tf.string) if column in self._packed else spec
            for column, (_, spec) in self._specs.items()
        }
        """The columns, per sample."""

    def pack(self, columns: Columns, rows: npt.NDArray[np.bool_]) -> Columns:
        """Returns columns of `rows.size` rows, empty except where `rows` is true."""
        packed: Columns = {}
        for column, spec in self.columns.items():
            is_bytes = spec.dtype == tf.string
            dtype = np.dtype(object) if is_bytes else np.dtype(spec.dtype.as_numpy_dtype)
            packed[column] = np.full((rows.size, *spec.shape), b"" if is_bytes else 0, dtype)
            if not rows.any():
                continue
            values = columns[self._specs[column][0]]
            if column in self._packed:
                values = np.array([value.tobytes() for value in values], object)
            packed[column][rows] = values
        return packed

    def unpack(self, row: Sample) -> Sample:
        """Returns the values of a row that has them, inside a graph."""
        return {
            name: tf.reshape(tf.io.decode_raw(row[column], spec.dtype), spec.shape)
            if column in self._packed
            else row[column]
            for column, (name, spec) in self._specs.items()
        }


def _is_large(spec: tf.TensorSpec) -> bool:
    if spec.dtype == tf.string or spec.dtype in _UNPACKED:
        return False
    return bool(spec.shape.num_elements() * spec.dtype.size >= _MIN_BYTES)
