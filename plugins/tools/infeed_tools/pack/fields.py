"""The fields of a pack: their types and values, and their form in shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError

Value: TypeAlias = "npt.NDArray[Any] | bytes"
"""A byte string, or an array: 0-dimensional for a scalar, of objects for several strings."""

Values = Mapping[str, Value]
"""A sample: its values by field."""

_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
"""Types whose scalars are stored as int64."""

_MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG\r\n\x1a\n": "png"}
"""The formats of images by their first bytes."""


class Field(NamedTuple):
    """A field of all samples."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    image: str = ""
    """The format of its images, jpg or png; empty for other values."""

    @property
    def stored(self) -> str:
        """The type of its feature in an Example; `raw`, the bytes of the array, if an Example lacks
        the type or would need more bytes for it."""
        if self.dtype == "string":
            return "bytes"
        if self.dtype == "int64" or (self.dtype in _INTEGERS and not self.shape):
            return "int64"
        return "float" if self.dtype == "float32" else "raw"

    def feature(self) -> Any:
        """Returns its feature in the form of a source's YAML."""
        if self.stored == "raw" or not self.shape:
            return "bytes" if self.stored == "raw" else self.stored
        return {"type": self.stored, "shape": list(self.shape)}

    def transform(self) -> dict[str, Any] | None:
        """Returns the transform that restores its type; None if none is needed."""
        if self.stored == "raw":
            options = {"field": self.name, "dtype": self.dtype, "shape": list(self.shape)}
            return {"decode_raw": options}
        if self.stored == "int64" and self.dtype != "int64":
            return {"cast": {"field": self.name, "dtype": self.dtype}}
        return None


def fields_of(specs: Mapping[str, tf.TensorSpec], examples: Sequence[Values]) -> list[Field]:
    """Returns the fields, sorted by name; one with images in most examples is a field of images.
    Raises `ConfigError` for a field without a fixed shape."""
    found = []
    for name, spec in sorted(specs.items()):
        if not spec.shape.is_fully_defined():
            raise ConfigError(
                f"field {name!r} has the shape {spec.shape}, but a packed field must have the same "
                "shape in each sample; pad it in the source (max_length of a table or an Example), "
                "or serve the data without a pack, as boxes of COCO and YOLO"
            )
        kinds = Counter(_image_kind(values[name]) for values in examples)
        (kind, _), *_ = kinds.most_common(1) or [("", 0)]
        found.append(Field(name, spec.dtype.name, tuple(spec.shape), kind))
    return found


def _image_kind(value: Value) -> str:
    if not isinstance(value, bytes):
        return ""
    return next((kind for magic, kind in _MAGIC.items() if value.startswith(magic)), "")
