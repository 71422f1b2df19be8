"""The base of sources of fields, whose arrays may vary in size."""

from __future__ import annotations

import tensorflow as tf

from infeed.shared.spec import BYTES
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.python.values import Field


class ColumnSource(Source):
    """A source of fields. Arrays whose size varies are columns of serialized tensors."""

    _fields: tuple[Field, ...]

    def set_fields(self, fields: tuple[Field, ...]) -> None:
        self._fields = fields
        self.columns = {
            field.name: tf.TensorSpec((), tf.string) if field.varies else _tensor_spec(field)
            for field in fields
        }
        self.parsed = not any(field.varies for field in fields)

    def to_columns(self, columns: Columns) -> Columns:
        """Returns what was read, with arrays that vary as serialized tensors."""
        for field in self._fields:
            if field.varies:
                arrays, dtype = columns[field.name], _tensor_spec(field).dtype
                for row, array in enumerate(arrays):
                    arrays[row] = tf.io.serialize_tensor(tf.constant(array, dtype)).numpy()
        return columns

    def parse(self, columns: Sample) -> Sample:
        return {field.name: _parse(columns[field.name], field) for field in self._fields}


def _tensor_spec(field: Field) -> tf.TensorSpec:
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec(field.shape, dtype)


def _parse(column: tf.Tensor, field: Field) -> tf.Tensor:
    if not field.varies:
        return column
    spec = _tensor_spec(field)
    return tf.ensure_shape(tf.io.parse_tensor(column, spec.dtype), spec.shape)
