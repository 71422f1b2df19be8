"""Fields of sources with arrays that may vary in size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infeed.shared.spec import BYTES
from infeed_formats.elements import ColumnBuilder
from infeed_formats.values import Field, fit
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices, Places

Decode = Callable[[bytes], Any]
"""A function that decodes a value. Raises `ValueError`; its message continues "its field x ..."."""


class ColumnSource(Source):
    """A source of fields. Arrays of varying size become columns of serialized tensors."""

    def __init__(
        self,
        places: Places,
        fields: tuple[Field, ...],
        identity: str,
        *,
        classes: Mapping[str, Sequence[str]] = {},
        advice: str = "",
    ) -> None:
        columns = {
            field.name: tf.TensorSpec((), tf.string) if field.varies else tensor_spec(field)
            for field in fields
        }
        parsed = not any(field.varies for field in fields)
        super().__init__(places, columns, identity, parsed=parsed, classes=classes, advice=advice)
        self.fields = fields

    def to_columns(self, columns: Columns) -> Columns:
        """Returns the columns as read, with varying arrays as serialized tensors."""
        for field in self.fields:
            if field.varies:
                arrays, dtype = columns[field.name], tensor_spec(field).dtype
                for row, array in enumerate(arrays):
                    arrays[row] = tf.make_tensor_proto(array, dtype).SerializeToString()
        return columns

    def decode(
        self,
        indices: Indices,
        samples: Iterable[Mapping[str, bytes]],
        decoders: Mapping[str, Decode],
    ) -> Columns:
        """Decodes the columns of samples from the bytes of their fields. Raises `SampleError`."""
        builder = ColumnBuilder(self.fields, len(indices))
        for row, (index, sample) in enumerate(zip(indices.tolist(), samples, strict=True)):
            arrays = {}
            for field in self.fields:
                try:
                    arrays[field.name] = fit(decoders[field.name](sample[field.name]), field)
                except ValueError as error:
                    raise self.sample_error(index, f"its field {field.name!r} {error}") from error
            builder.set(row, arrays)
        return self.to_columns(builder.columns)

    def parse(self, columns: Sample) -> Sample:
        return {field.name: _parse(columns[field.name], field) for field in self.fields}


def tensor_spec(field: Field) -> tf.TensorSpec:
    """Returns the type and shape of a field."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec(field.shape, dtype)


def _parse(column: tf.Tensor, field: Field) -> tf.Tensor:
    if not field.varies:
        return column
    spec = tensor_spec(field)
    return tf.ensure_shape(tf.io.parse_tensor(column, spec.dtype), spec.shape)
