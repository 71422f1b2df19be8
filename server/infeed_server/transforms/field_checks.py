"""Checks of a transform's input: type and shape when traced, sizes at run time."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from infeed_server.transforms.base import FieldTransform

IMAGE_TYPES = (
    *("uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Data types that the functions of `tf.image` support."""


def require_bytes(x: tf.Tensor, step: FieldTransform, *, instead: str) -> tf.Tensor:
    """Returns the field as one byte string. Raises `ConfigError` with the advice `instead`."""
    holds = f"field {step.field!r} holds {describe_tensor(x)}, not"
    if x.dtype != tf.string:
        raise step.error(f"{holds} encoded bytes; {instead}")
    if x.shape.rank not in (0, None):
        raise step.error(f"{holds} one byte string")
    return tf.ensure_shape(x, [])


def require_numbers(x: tf.Tensor, step: FieldTransform) -> tf.Tensor:
    """Returns the field as numbers of any shape. Raises `ConfigError` for byte strings."""
    if x.dtype == tf.string:
        raise step.error(
            f"field {step.field!r} holds bytes; put decode_image, decode_raw or string_to_number "
            "before it"
        )
    return x


def require_type(x: tf.Tensor, step: FieldTransform, types: Sequence[str] = IMAGE_TYPES) -> None:
    """Raises `ConfigError` for a field of another type than these."""
    if x.dtype.name not in types:
        raise step.error(
            f"field {step.field!r} holds {x.dtype.name}; supported: {', '.join(types)}"
        )


def require_image(
    x: tf.Tensor, step: FieldTransform, types: Sequence[str] = IMAGE_TYPES
) -> tf.Tensor:
    """Returns the field as pixels [height, width, channels], or raises `ConfigError`."""
    if x.dtype == tf.string:
        raise step.error(f"field {step.field!r} holds encoded bytes; put decode_image before it")
    require_type(x, step, types)
    if x.shape.rank not in (3, None):
        raise step.error(
            f"field {step.field!r} has the shape {format_shape(x.shape)}, not "
            "[height, width, channels]"
        )
    return tf.ensure_shape(x, [None, None, None])


def require_at_run_time(condition: tf.Tensor, message: str, data: tf.Tensor) -> list[tf.Operation]:
    """Fails the sample with the message and the values of `data` unless the condition holds.

    Returns the control dependencies of the next op. The message should have no quotes: TensorFlow
    shows them as \\'.
    """
    if tf.executing_eagerly():
        # An eager Assert puts "Expected 'tf.Tensor(False, ...)' to be true" before the message.
        if not condition:
            value = data.numpy()
            shown = repr(value) if isinstance(value, bytes) else str(value.tolist())
            raise tf.errors.InvalidArgumentError(None, None, f"{message} {shown}")
        return []
    # tf.debugging.Assert would add two functions to the graph.
    return [tf.raw_ops.Assert(condition=condition, data=[message, data])]


def describe_tensor(x: tf.Tensor) -> str:
    """Describes a tensor: `uint8[224, ?, 3]`, with a question mark for a size that varies."""
    return f"{'bytes' if x.dtype == tf.string else x.dtype.name}{format_shape(x.shape)}"


def format_shape(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "[...]"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
