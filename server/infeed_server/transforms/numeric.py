"""Elementwise transforms of numbers; those with a finish transform run the trainer's code."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from pydantic import model_validator
from typing_extensions import Self, override

from infeed.shared import spec
from infeed_server.transforms.base import FieldTransform, Key, describe_tensor, require_numbers
from infeed_server.transforms.option_types import Finite, FloatType, Numbers, NumberType, Positive


class Normalize(FieldTransform):
    """Computes ((x / `scale`) - `mean`) / `std`, leaving out steps whose option is missing.

    Result: → `dtype`; shape kept.
    """

    scale: Finite | None = None
    """First divisor; at least one of `scale`, `mean` and `std` is required."""
    mean: Numbers | None = None
    """Subtracted: one number, or one per channel (entry of the last dimension)."""
    std: Numbers | None = None
    """Last divisor: one number, or one per channel."""
    dtype: FloatType = "float32"
    """Type of the computation and of the result."""

    @model_validator(mode="after")
    def _check_operands(self) -> Self:
        if self.scale is None and self.mean is None and self.std is None:
            raise ValueError("at least one of scale, mean and std is required")
        scale = None if self.scale is None else (self.scale,)
        for option, values in (("scale", scale), ("mean", self.mean), ("std", self.std)):
            for value in values or ():
                rounded = float(_round_to(value, self.dtype))
                if not np.isfinite(rounded) or (rounded == 0 and option != "mean"):
                    problem = f"{option} {value:g} is {rounded:g} in {self.dtype}"
                    raise ValueError(f"{problem}; it must be finite, and a divisor not 0")
        return self

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        x = require_numbers(x, self)
        self._check_shape(x)
        return _apply(self.finish_transform(), x)

    @override
    def finish_transform(self) -> spec.Normalize:
        return spec.Normalize(self.field, self.scale, self.mean or (), self.std or (), self.dtype)

    def _check_shape(self, x: tf.Tensor) -> None:
        last = x.shape[-1] if x.shape.rank else 1
        for option, values in (("mean", self.mean), ("std", self.std)):
            if values is None or len(values) == 1:
                continue
            if last != len(values):
                raise self.error(
                    f"{option} has {len(values)} numbers, but field {self.field!r} "
                    f"holds {describe_tensor(x)}: give one number, or one for each entry of the "
                    "last dimension"
                )


class Cast(FieldTransform):
    """Converts; floats become integers by truncation, and values out of range saturate.

    Saturation replaces a value outside an integer type's range by the nearest one inside, and NaN
    by 0. The result is the same on the server, in NumPy and in TensorFlow, for each pair of types.

    Result: → `dtype`; shape kept.
    """

    keeps_classes: ClassVar[bool] = True

    dtype: NumberType
    """Type of the result."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        return _apply(self.finish_transform(), require_numbers(x, self))

    @override
    def finish_transform(self) -> spec.Cast:
        return spec.Cast(self.field, self.dtype)


class OneHot(FieldTransform):
    """Adds a last dimension: `on_value` at the label, else `off_value`, as `tf.one_hot` does.

    Result: integers → `dtype`; a new last dimension of `depth`.
    """

    keeps_classes: ClassVar[bool] = True

    depth: Positive
    """Number of classes; a label outside [0, `depth`) gives `off_value` everywhere."""
    dtype: NumberType = "float32"
    """Type of the result."""
    on_value: Finite = 1.0
    """Value at the label."""
    off_value: Finite = 0.0
    """Value elsewhere."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        for option, value in (("on_value", self.on_value), ("off_value", self.off_value)):
            if "float" not in self.dtype and _round_to(value, self.dtype) != value:
                raise ValueError(f"{option} {value} cannot be represented in {self.dtype}")
        return self

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        x = require_numbers(x, self)
        if not x.dtype.is_integer:
            raise self.error(
                f"field {self.field!r} holds {x.dtype.name}, not integers; put cast "
                "with dtype: int64 before it"
            )
        return _apply(self.finish_transform(), x)

    @override
    def finish_transform(self) -> spec.OneHot:
        return spec.OneHot(self.field, self.depth, self.dtype, self.on_value, self.off_value)


class StringToNumber(FieldTransform):
    """Parses numbers, `b"7"` → 7, as `tf.strings.to_number` does; other text is a bad sample.

    Result: bytes → `dtype`; shape kept.
    """

    dtype: Literal["int32", "int64", "float32", "float64"] = "float32"
    """Type of the result."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        if x.dtype != tf.string:
            raise self.error(
                f"field {self.field!r} holds {describe_tensor(x)}, which are numbers already; "
                "use cast to change their type"
            )
        return tf.strings.to_number(x, tf.as_dtype(self.dtype))


class ConvertImageDtype(FieldTransform):
    """Converts to another type and scales values to its range; floats are in [0, 1].

    As `tf.image.convert_image_dtype`; floats out of [0, 1] saturate, and NaN becomes 0, as in
    `cast`. It runs on the server. For fewer bytes on the wire, `normalize` with `scale: 255.0`
    gives uint8 images nearly the same values.

    Result: → `dtype`; shape kept.
    """

    dtype: Literal[
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64", "bfloat16",
    ]  # fmt: skip
    """Type of the result."""

    @override
    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        x = require_numbers(x, self)
        if x.dtype == tf.bool:
            raise self.error(f"field {self.field!r} holds bool; use cast")
        data_type = tf.as_dtype(self.dtype)
        if x.dtype.is_floating and data_type.is_integer:
            from infeed.shared.tensorflow.finish import saturating_cast  # noqa: PLC0415 - loads TensorFlow

            # Half a step more, as in TensorFlow, so that truncation rounds to the nearest.
            return saturating_cast(x * (data_type.max + 0.5), data_type)
        return tf.image.convert_image_dtype(x, data_type, saturate=True)


def _apply(transform: spec.Elementwise, x: tf.Tensor) -> tf.Tensor:
    from infeed.shared.tensorflow.finish import apply  # noqa: PLC0415 - it loads TensorFlow

    return apply(transform, x)


def _round_to(value: float, data_type: str) -> Any:
    with np.errstate(all="ignore"):
        return np.array(value).astype(spec.numpy_dtype(data_type))
