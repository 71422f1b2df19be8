"""The reader of a user's data set, as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from infeed.shared.spec import BYTES
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
from infeed_server.sources.python.backend import Backend
from infeed_server.sources.python.elements import example_indices
from infeed_server.sources.python.values import Field
from infeed_server.sources.python.worker import Request


class ColumnSource(Source):
    """A source whose samples workers read. Arrays that vary are columns of serialized tensors."""

    backend: Backend
    _fields: tuple[Field, ...]

    def set_fields(self, fields: tuple[Field, ...]) -> None:
        self._fields = fields
        self.columns = {
            field.name: tf.TensorSpec((), tf.string) if field.varies else _tensor_spec(field)
            for field in fields
        }
        self.parsed = not any(field.varies for field in fields)

    def parse(self, columns: Sample) -> Sample:
        return {field.name: _parse(columns[field.name], field) for field in self._fields}


class PythonReader(ColumnSource):
    """Reads elements by index."""

    def __init__(self, backend: Backend, fields: tuple[Field, ...] | None) -> None:
        """Reads some elements unless fields are declared. Raises the errors of a worker."""
        self.backend = backend
        self._description = opened = backend.open()
        if fields is None:
            looked_at = example_indices(opened.length)
            fields = backend.infer(Request(backend.label, looked_at, opened))
        self.set_fields(fields)
        listed = [f"{field.name}: {field}" for field in fields]
        self.identity = hashlib.sha256(f"{opened.identity} {listed}".encode()).hexdigest()

    def __len__(self) -> int:
        return self._description.length

    def provenance(self, index: int) -> Provenance:  # noqa: ARG002 - only the object knows
        return Provenance(self.backend.label)

    def request(self, indices: Sequence[int]) -> Request:
        return Request(self.backend.label, indices, self._description, self._fields)

    def read(self, indices: Indices) -> Columns:
        return self.backend.read(self.request(indices.tolist()))

    def close(self) -> None:
        self.backend.close()


def _tensor_spec(field: Field) -> tf.TensorSpec:
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec(field.shape, dtype)


def _parse(column: tf.Tensor, field: Field) -> tf.Tensor:
    if not field.varies:
        return column
    spec = _tensor_spec(field)
    return tf.ensure_shape(tf.io.parse_tensor(column, spec.dtype), spec.shape)
