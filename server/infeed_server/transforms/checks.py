"""What a transform may ask of a field: its type and shape at tracing, its sizes at run time."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from infeed.errors import ConfigError

IMAGE_TYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
"""What the functions of `tf.image` take."""


def require_bytes(x: tf.Tensor, field: str, transform: str, *, instead: str) -> tf.Tensor:
    """The field, one byte string. Raises `ConfigError` that says what to do `instead`."""
    if x.dtype != tf.string:
        raise ConfigError(
            f"{transform}: field {field!r} holds {described(x)}, not encoded bytes; {instead}",
            stage=transform,
        )
    if x.shape.rank not in (0, None):
        raise ConfigError(
            f"{transform}: field {field!r} holds {described(x)}, not one byte string",
            stage=transform,
        )
    return tf.ensure_shape(x, [])


def require_numbers(x: tf.Tensor, field: str, transform: str) -> tf.Tensor:
    """The field, numbers of any shape. Raises `ConfigError` for byte strings."""
    if x.dtype == tf.string:
        raise ConfigError(
            f"{transform}: field {field!r} holds bytes; put decode_image, decode_raw or "
            "string_to_number before it",
            stage=transform,
        )
    return x


def require_image(
    x: tf.Tensor, field: str, transform: str, *, types: Sequence[str] = IMAGE_TYPES
) -> tf.Tensor:
    """The field, pixels of shape [height, width, channels]. Raises `ConfigError`."""
    if x.dtype == tf.string:
        raise ConfigError(
            f"{transform}: field {field!r} holds encoded bytes; put decode_image before it",
            stage=transform,
        )
    if x.dtype.name not in types:
        raise ConfigError(
            f"{transform}: field {field!r} holds {x.dtype.name}; it takes {', '.join(types)}",
            stage=transform,
        )
    if x.shape.rank not in (3, None):
        raise ConfigError(
            f"{transform}: field {field!r} has the shape {shown(x.shape)}, not "
            "[height, width, channels]",
            stage=transform,
        )
    return tf.ensure_shape(x, [None, None, None])


def require_at_run_time(condition: tf.Tensor, message: str, data: tf.Tensor) -> list[tf.Operation]:
    """Fails the sample with the message and the values of `data` unless the condition holds.

    Gives what the next step must wait for, as `tf.control_dependencies` takes it. TensorFlow
    shows quotes in such a message as \\', so better have none.
    """
    if tf.executing_eagerly():
        # An eager Assert says "Expected 'tf.Tensor(False, ...)' to be true" in front of it all.
        if not condition:
            raise tf.errors.InvalidArgumentError(None, None, f"{message} {data.numpy().tolist()}")
        return []
    return [tf.debugging.Assert(condition, [message, data])]


def described(x: tf.Tensor) -> str:
    """`uint8[224, 224, 3]`; a question mark for a size that varies."""
    return f"{'bytes' if x.dtype == tf.string else x.dtype.name}{shown(x.shape)}"


def shown(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "[...]"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
