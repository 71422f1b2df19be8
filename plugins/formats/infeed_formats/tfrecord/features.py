"""The features of a tf.train.Example, and their parsing into fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import tensorflow as tf
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infeed_formats.tfrecord import preview
from infeed_server.config.model import Definition, as_tuple
from infeed_server.sources.base import Sample, expand_type

_FLOAT = ("float32", 0.0, (int, float))
_TYPES: Mapping[str, Any] = {
    "bytes": ("string", "", str),
    "int64": ("int64", 0, int),
    "float": _FLOAT,
    "float32": _FLOAT,
}
"""Type of a feature → TensorFlow's type, the default padding, and Python's types of padding."""

_Size = Annotated[int, Field(gt=0, lt=1 << 31)]


class FeatureOptions(Definition):
    """One feature: a scalar, a fixed `shape`, or up to `max_length` values, padded."""

    type: Literal["bytes", "int64", "float", "float32"]
    """Type of the values; `float` is `float32`."""
    shape: Annotated[tuple[_Size, ...], BeforeValidator(as_tuple)] | None = None
    """Exact shape of the values of each sample, as a list of sizes."""
    max_length: _Size | None = None
    """Maximum number of values; fewer are padded. The field `NAME_length` (int64) holds their
    number."""
    pad_value: str | int | float | None = None
    """Value of the padding, of the feature's type; the default is 0 or the empty string."""

    @model_validator(mode="after")
    def _check(self) -> FeatureOptions:
        if self.shape is not None and self.max_length is not None:
            raise ValueError("give a feature a shape or a max_length, not both")
        if self.pad_value is None:
            return self
        if self.max_length is None:
            raise ValueError("pad_value requires max_length")
        _, _, expected = _TYPES[self.type]
        if isinstance(self.pad_value, bool) or not isinstance(self.pad_value, expected):
            raise ValueError(f"pad_value {self.pad_value!r} is not of type {self.type}")
        return self

    def parse_spec(self) -> Any:
        """Returns the specification of the feature for tf.io.parse_single_example."""
        dtype = tf.as_dtype(_TYPES[self.type][0])
        if self.max_length is None:
            return tf.io.FixedLenFeature(self.shape or (), dtype)
        return tf.io.FixedLenSequenceFeature((), dtype, allow_missing=True)

    def pad(self, name: str, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the values padded to [max_length], and their original number: int64 scalar."""
        length = tf.size(values, out_type=tf.int64)
        message = f"feature {name} has more values than its max_length {self.max_length}:"
        fits = tf.debugging.Assert(length <= self.max_length, [message, length])
        padding = _TYPES[self.type][1] if self.pad_value is None else self.pad_value
        with tf.control_dependencies([fits]):
            filler = tf.fill([self.max_length - length], tf.constant(padding, values.dtype))
        padded = tf.concat([values, filler], axis=0)
        return tf.ensure_shape(padded, [self.max_length]), length


Feature = Annotated[FeatureOptions, BeforeValidator(expand_type)]
"""A feature in YAML; the name of a type alone means a scalar."""


def _check_names(features: dict[str, FeatureOptions]) -> dict[str, FeatureOptions]:
    for name, feature in features.items():
        if feature.max_length is not None and length_field(name) in features:
            raise ValueError(
                f"feature {name!r} adds a field {length_field(name)!r}, which is also the "
                "name of a feature"
            )
    return features


Features = Annotated[
    dict[str, Feature],
    Field(min_length=1, examples=["{image: bytes, label: int64}"]),
    AfterValidator(_check_names),
]


def parse_record(record: tf.Tensor, features: Mapping[str, FeatureOptions]) -> Sample:
    """Parses one serialized Example. Outside a graph, its error lists the record's features."""
    try:
        return parse_example(record, features)
    except tf.errors.InvalidArgumentError as error:
        problem = error.message.partition(" [Op:")[0].rstrip(". ")
        raise ValueError(f"{problem}; {preview.describe(record.numpy())}") from error


def parse_example(record: tf.Tensor, features: Mapping[str, FeatureOptions]) -> Sample:
    """Parses one serialized Example inside a graph, which fails for missing features."""
    parsed = tf.io.parse_single_example(
        record, {name: feature.parse_spec() for name, feature in features.items()}
    )
    sample: Sample = {}
    for name, feature in features.items():
        if feature.max_length is None:
            sample[name] = parsed[name]
        else:
            sample[name], sample[length_field(name)] = feature.pad(name, parsed[name])
    return sample


def length_field(name: str) -> str:
    """Returns the name of the field that counts the values of a variable-length feature."""
    return f"{name}_length"
