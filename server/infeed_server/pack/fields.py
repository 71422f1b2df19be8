"""The fields of a pack: their types, how a shard stores them, and their values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.config.document import flow
from infeed_server.pack.images import image_kind

Value: TypeAlias = "npt.NDArray[Any] | bytes"
"""A byte string, or an array (0-dimensional for a scalar; of objects for several strings)."""

Values = Mapping[str, Value]
"""One sample: field name → value."""

_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
"""Types of which a scalar is stored as an int64."""


class Field(NamedTuple):
    """A field, and how an Example stores it: `bytes`, `int64`, `float`, or `raw`, the bytes of the
    array, for types that an Example has not or stores in more bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    image: str = ""
    """The extension of its images; empty if it has none."""

    @property
    def stored(self) -> str:
        if self.dtype == "string":
            return "bytes"
        if self.dtype == "int64" or (self.dtype in _INTEGERS and not self.shape):
            return "int64"
        return "float" if self.dtype == "float32" else "raw"

    @property
    def kind(self) -> str:
        """The extension of its files in a tar."""
        if self.stored == "bytes" and not self.shape:
            return self.image or "bin"
        return "cls" if self.stored == "int64" and not self.shape else "npy"

    def document(self) -> dict[str, Any]:
        """Returns the field as the manifest has it."""
        document = {"dtype": self.dtype, "shape": list(self.shape), "stored": self.stored}
        return {**document, "image": self.image} if self.image else document

    def feature_line(self) -> str:
        """Returns the line of YAML below `features:`."""
        kind = "bytes" if self.stored == "raw" else self.stored
        if self.shape and self.stored != "raw":
            return flow({self.name: {"type": kind, "shape": list(self.shape)}})[1:-1]
        return f"{flow(self.name)}: {kind}"

    def transform_line(self) -> str:
        """Returns the line of YAML of the transform that restores its type; empty if none need."""
        if self.stored == "raw":
            options = {"field": self.name, "dtype": self.dtype, "shape": list(self.shape)}
            return f"- decode_raw: {flow(options)}"
        if self.stored == "int64" and self.dtype != "int64":
            return f"- cast: {flow({'field': self.name, 'dtype': self.dtype})}"
        return ""


def fields_of(specs: Mapping[str, tf.TensorSpec], examples: Sequence[Values]) -> list[Field]:
    """Returns the fields, sorted by name; those are images that are in most of the examples.
    Raises `ConfigError` for one without a fixed shape."""
    found = []
    for name, spec in sorted(specs.items()):
        if not spec.shape.is_fully_defined():
            raise ConfigError(
                f"field {name!r} has the shape {spec.shape}, and a packed field has the same in "
                "each sample; pad it in the source, or give a max_length"
            )
        kinds = Counter(image_kind(values[name]) for values in examples)
        (kind, _), *_ = kinds.most_common(1) or [("", 0)]
        found.append(Field(name, spec.dtype.name, tuple(spec.shape), kind))
    return found


def extensions(fields: Sequence[Field]) -> dict[str, str]:
    """Returns the extension of each field's files in a tar: `jpg`, or `mask.jpg` if several fields
    are of a kind."""
    kinds = Counter(field.kind for field in fields)
    return {
        field.name: field.kind if kinds[field.kind] == 1 else f"{field.name}.{field.kind}"
        for field in fields
    }


def to_example(values: Values, fields: Sequence[Field]) -> bytes:
    """Returns the serialized tf.train.Example of a sample, the same bytes for the same values."""
    features = {field.name: _feature(field, values[field.name]) for field in fields}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def _feature(field: Field, value: Value) -> Any:
    if field.stored == "bytes":
        strings = [value] if isinstance(value, bytes) else value.ravel().tolist()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=strings))
    array = np.asarray(value)
    if field.stored == "raw":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))
    if field.stored == "int64":
        integers = array.astype(np.int64).ravel().tolist()
        return tf.train.Feature(int64_list=tf.train.Int64List(value=integers))
    return tf.train.Feature(float_list=tf.train.FloatList(value=array.ravel().tolist()))


def from_example(record: bytes, fields: Sequence[Field]) -> Values:
    """Returns the values of a record. Raises an exception for other bytes."""
    features = tf.train.Example.FromString(record).features.feature
    values: dict[str, Value] = {}
    for field in fields:
        feature = features[field.name]
        stored = feature.bytes_list if field.stored in ("bytes", "raw") else feature.int64_list
        items = list(feature.float_list.value if field.stored == "float" else stored.value)
        if field.stored == "bytes":
            values[field.name] = items[0] if not field.shape else strings_of(items, field.shape)
        elif field.stored == "raw":
            values[field.name] = from_bytes(items[0], field)
        else:
            values[field.name] = np.array(items, field.dtype).reshape(field.shape)
    return values


def strings_of(items: Sequence[bytes], shape: Sequence[int]) -> npt.NDArray[np.object_]:
    """Returns an array of byte strings."""
    array = np.empty(math.prod(shape), object)
    array[:] = items
    return array.reshape(shape)


def from_bytes(content: bytes, field: Field) -> npt.NDArray[Any]:
    """Returns the array of the bytes of its little-endian numbers."""
    dtype = tf.as_dtype(field.dtype).as_numpy_dtype
    return np.frombuffer(content, dtype).reshape(field.shape)


def equal(first: Value, second: Value) -> bool:
    """Returns whether two values have the same type and bits, also where they are NaN."""
    if isinstance(first, bytes) or isinstance(second, bytes):
        return isinstance(first, bytes) and isinstance(second, bytes) and first == second
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype == object:
        return bool(first.ravel().tolist() == second.ravel().tolist())
    return bool(first.tobytes() == second.tobytes())
