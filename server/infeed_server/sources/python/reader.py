"""The reader of a user's data set, as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from infeed.shared.spec import BYTES
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
from infeed_server.sources.python.backend import Backend
from infeed_server.sources.python.dataset import Description
from infeed_server.sources.python.elements import example_indices
from infeed_server.sources.python.values import Field
from infeed_server.sources.python.worker import Worker


class PythonReader(Source):
    """Reads elements by index. Arrays whose shape varies are columns of serialized tensors."""

    def __init__(self, backend: Backend) -> None:
        """Reads some elements unless fields are declared. Raises the errors of `UserDataset`."""
        self.backend = backend
        opened: Description = backend.call(Worker.open)
        if not opened.fields:
            opened = backend.call(Worker.describe, opened, indices=example_indices(opened.length))
        self.description = opened
        self.columns = column_specs(opened.fields)
        self.parsed = not any(field.varies for field in opened.fields)
        fields = [f"{field.name}: {field}" for field in opened.fields]
        self.identity = hashlib.sha256(f"{opened.identity} {fields}".encode()).hexdigest()

    def __len__(self) -> int:
        return self.description.length

    def provenance(self, index: int) -> Provenance:  # noqa: ARG002 - only the object knows
        return Provenance(self.backend.label)

    def read(self, indices: Indices) -> Columns:
        numbers, expected = indices.tolist(), self.description
        return self.backend.read(
            Worker.read, expected.fields, numbers, lambda part: (expected, numbers[part])
        )

    def parse(self, columns: Sample) -> Sample:
        return parse_columns(columns, self.description.fields)

    def close(self) -> None:
        self.backend.close()


def column_specs(fields: Sequence[Field]) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the columns that have these fields."""
    return {
        field.name: tf.TensorSpec((), tf.string) if field.varies else _tensor_spec(field)
        for field in fields
    }


def parse_columns(columns: Sample, fields: Sequence[Field]) -> Sample:
    """Parses one sample's columns into these fields, inside a graph."""
    return {field.name: _parse(columns[field.name], field) for field in fields}


def _tensor_spec(field: Field) -> tf.TensorSpec:
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec(field.shape, dtype)


def _parse(column: tf.Tensor, field: Field) -> tf.Tensor:
    if not field.varies:
        return column
    spec = _tensor_spec(field)
    return tf.ensure_shape(tf.io.parse_tensor(column, spec.dtype), spec.shape)
