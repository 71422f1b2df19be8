"""Types of options that several transforms share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from infeed_server.config.model import as_tuple

NumberType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16",
]  # fmt: skip
"""Every data type of a field except byte strings."""

FloatType = Literal["float16", "float32", "float64", "bfloat16"]


def _as_numbers(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value,) if is_number else as_tuple(value)


Positive = Annotated[int, Field(gt=0, lt=1 << 31)]
"""Far above what TensorFlow can hold in one dimension, which it does not always report."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Size = Annotated[
    tuple[Positive, Positive], BeforeValidator(as_tuple), Field(examples=["[224, 224]"])
]
"""[height, width] in pixels."""

Shape = Annotated[tuple[Positive, ...], BeforeValidator(as_tuple)]
"""The shape of one sample's value; [] for a scalar."""

Numbers = Annotated[tuple[Finite, ...], Field(min_length=1), BeforeValidator(_as_numbers)]
"""One number, or one for each entry of the last dimension."""

Range = Annotated[tuple[Finite, Finite], BeforeValidator(as_tuple), Field(examples=["[0.8, 1.2]"])]
"""[lower, upper]."""

Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(min_length=1),
    BeforeValidator(as_tuple),
]
"""Names of fields."""
