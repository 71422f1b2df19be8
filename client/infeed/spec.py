"""What a pipeline is, as plain values: the same on the server, on the wire and at the trainer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from infeed.errors import MissingExtraError, ProtocolError
from infeed.v1 import spec_pb2

Array: TypeAlias = npt.NDArray[Any]
"""One field of a batch, slots first."""

Remainder = Literal["drop", "pad"]
OnError = Literal["raise", "substitute", "mask"]
FinishPlacement = Literal["trainer", "server"]

BYTES = "bytes"
"""The data type of a field of byte strings; in NumPy an object array of `bytes`."""

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16"),
)
DATA_TYPES = (*_NUMBERS, BYTES)
"""Every name that a field's data type can have: NumPy's, and `bytes`."""

MAX_BATCH_SIZE = 1 << 17
"""Slots. Keeps a batch's header (13 bytes a slot) under gRPC's default limit of 4 MiB."""


def numpy_dtype(data_type: str) -> np.dtype[Any]:
    """The NumPy type of a data type's elements; `object` for byte strings."""
    if data_type == BYTES:
        return np.dtype(object)
    if data_type == "bfloat16":
        try:
            import ml_dtypes  # noqa: PLC0415 - only this type needs the package
        except ImportError:
            raise MissingExtraError(
                "this pipeline has a bfloat16 field, which NumPy gets from the package ml_dtypes: "
                "pip install ml_dtypes"
            ) from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(data_type)


def data_type_to_proto(data_type: str) -> spec_pb2.DataType:
    number = spec_pb2.DataType.Value(f"DATA_TYPE_{data_type.upper()}")
    return cast("spec_pb2.DataType", number)


def data_type_from_proto(value: int) -> str:
    name: str = _word(spec_pb2.DataType, value, "DATA_TYPE_")
    return name


@dataclass(frozen=True)
class FieldSpec:
    """One field of one sample: its name, data type and shape (no slots dimension)."""

    name: str
    data_type: str
    shape: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Elements in one sample."""
        return math.prod(self.shape)

    @property
    def sample_bytes(self) -> int | None:
        """Bytes of one sample; None for byte strings, whose length varies."""
        if self.data_type == BYTES:
            return None
        return self.elements * numpy_dtype(self.data_type).itemsize

    def zeros(self, slots: int) -> Array:
        """An array of that many empty slots: zeros, or empty strings."""
        empty: Any = b"" if self.data_type == BYTES else 0
        return np.full((slots, *self.shape), empty, dtype=numpy_dtype(self.data_type))

    def __str__(self) -> str:
        return f"{self.name}: {self.data_type}{list(self.shape)}"

    def to_proto(self) -> spec_pb2.FieldSpec:
        return spec_pb2.FieldSpec(
            name=self.name, data_type=data_type_to_proto(self.data_type), shape=self.shape
        )

    @classmethod
    def from_proto(cls, message: spec_pb2.FieldSpec) -> FieldSpec:
        return cls(message.name, data_type_from_proto(message.data_type), tuple(message.shape))


Spec: TypeAlias = tuple[FieldSpec, ...]
"""The fields of a batch, in order."""


def spec_from_proto(fields: Sequence[spec_pb2.FieldSpec]) -> Spec:
    return tuple(FieldSpec.from_proto(field) for field in fields)


@dataclass(frozen=True)
class Cast:
    """Convert the elements of `field` to `data_type`, as C does."""

    field: str
    data_type: str


@dataclass(frozen=True)
class Normalize:
    """((float(x) / scale) - mean) / std, each step rounded once in `data_type`.

    `mean` and `std` hold nothing (the step is left out), one number, or one number for each
    entry of the last dimension.
    """

    field: str
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    data_type: str = "float32"


@dataclass(frozen=True)
class OneHot:
    """A new last dimension of `depth` entries, `on_value` at the label, else `off_value`."""

    field: str
    depth: int
    data_type: str = "float32"
    on_value: float = 1.0
    off_value: float = 0.0


FinishTransform: TypeAlias = Cast | Normalize | OneHot
"""An elementwise transform that runs where the batch is consumed."""


def finish_to_proto(transform: FinishTransform) -> spec_pb2.FinishTransform:
    message = spec_pb2.FinishTransform(field=transform.field)
    data_type = data_type_to_proto(transform.data_type)
    if isinstance(transform, Cast):
        message.cast.data_type = data_type
    elif isinstance(transform, Normalize):
        message.normalize.data_type = data_type
        if transform.scale is not None:
            message.normalize.scale = transform.scale
        message.normalize.mean.extend(transform.mean)
        message.normalize.std.extend(transform.std)
    else:
        message.one_hot.depth = transform.depth
        message.one_hot.data_type = data_type
        message.one_hot.on_value = transform.on_value
        message.one_hot.off_value = transform.off_value
    return message


def finish_from_proto(message: spec_pb2.FinishTransform) -> FinishTransform:
    kind = message.WhichOneof("transform")
    if kind == "cast":
        return Cast(message.field, data_type_from_proto(message.cast.data_type))
    if kind == "normalize":
        body = message.normalize
        return Normalize(
            message.field,
            scale=body.scale if body.HasField("scale") else None,
            mean=tuple(body.mean),
            std=tuple(body.std),
            data_type=data_type_from_proto(body.data_type),
        )
    if kind == "one_hot":
        hot = message.one_hot
        data_type = data_type_from_proto(hot.data_type)
        return OneHot(message.field, hot.depth, data_type, hot.on_value, hot.off_value)
    raise ProtocolError(
        f"the server asks for a finish transform of field {message.field!r} that this client does "
        'not know: upgrade infeed here, or connect with finish="server"'
    )


@dataclass(frozen=True)
class Guarantee:
    """What a pipeline promises about order, delivery and resuming."""

    order: Literal["deterministic", "none"] = "deterministic"
    delivery: Literal["exactly_once", "at_most_once"] = "exactly_once"
    resume: Literal["constant_time", "replay", "none"] = "constant_time"

    def __str__(self) -> str:
        words = (f"{self.order} order", f"{self.delivery} delivery", f"{self.resume} resume")
        return ", ".join(words).replace("_", " ")

    def to_proto(self) -> spec_pb2.Guarantee:
        return spec_pb2.Guarantee(
            order=f"ORDER_{self.order.upper()}",
            delivery=f"DELIVERY_{self.delivery.upper()}",
            resume=f"RESUME_{self.resume.upper()}",
        )

    @classmethod
    def from_proto(cls, message: spec_pb2.Guarantee) -> Guarantee:
        return cls(
            order=_word(spec_pb2.Order, message.order, "ORDER_"),
            delivery=_word(spec_pb2.Delivery, message.delivery, "DELIVERY_"),
            resume=_word(spec_pb2.Resume, message.resume, "RESUME_"),
        )


@dataclass(frozen=True)
class PipelineSpec:
    """A served pipeline as `GetPipeline` describes it; spec.proto has the units."""

    name: str
    element_spec: Spec
    wire_spec: Spec
    finish_transforms: tuple[FinishTransform, ...]
    sample_count: int | None
    fingerprint: str
    guarantee: Guarantee
    batch_size: int
    seed: int
    remainder: Remainder
    on_error: OnError
    batch_stride: int = 0
    server_version: str = ""

    def stride(self, batch_size: int) -> int:
        """The positions that a batch of that many slots takes."""
        return self.batch_stride or batch_size

    def to_proto(self) -> spec_pb2.Pipeline:
        return spec_pb2.Pipeline(
            name=self.name,
            element_spec=[field.to_proto() for field in self.element_spec],
            wire_spec=[field.to_proto() for field in self.wire_spec],
            finish_transforms=[finish_to_proto(t) for t in self.finish_transforms],
            sample_count=self.sample_count,
            fingerprint=self.fingerprint,
            guarantee=self.guarantee.to_proto(),
            batch_size=self.batch_size,
            seed=self.seed,
            remainder=f"REMAINDER_{self.remainder.upper()}",
            on_error=f"ON_ERROR_{self.on_error.upper()}",
            batch_stride=self.batch_stride,
            server_version=self.server_version,
        )

    @classmethod
    def from_proto(cls, message: spec_pb2.Pipeline) -> PipelineSpec:
        return cls(
            name=message.name,
            element_spec=spec_from_proto(message.element_spec),
            wire_spec=spec_from_proto(message.wire_spec),
            finish_transforms=tuple(finish_from_proto(t) for t in message.finish_transforms),
            sample_count=message.sample_count if message.HasField("sample_count") else None,
            fingerprint=message.fingerprint,
            guarantee=Guarantee.from_proto(message.guarantee),
            batch_size=message.batch_size,
            seed=message.seed,
            remainder=_word(spec_pb2.Remainder, message.remainder, "REMAINDER_"),
            on_error=_word(spec_pb2.OnError, message.on_error, "ON_ERROR_"),
            batch_stride=message.batch_stride,
            server_version=message.server_version,
        )


def _word(enum: Any, value: int, prefix: str) -> Any:
    """The name of an enum's value as the rest of infeed has it: `ORDER_NONE` as `none`."""
    known = {number: name.removeprefix(prefix).lower() for name, number in enum.items() if number}
    if value not in known:
        raise ProtocolError(
            f"the server sent {value} for {enum.DESCRIPTOR.name}, which this client does not know; "
            "upgrade infeed here"
        )
    return known[value]


__all__ = [
    "BYTES",
    "DATA_TYPES",
    "MAX_BATCH_SIZE",
    "Array",
    "Cast",
    "FieldSpec",
    "FinishPlacement",
    "FinishTransform",
    "Guarantee",
    "Normalize",
    "OnError",
    "OneHot",
    "PipelineSpec",
    "Remainder",
    "Spec",
    "data_type_from_proto",
    "data_type_to_proto",
    "finish_from_proto",
    "finish_to_proto",
    "numpy_dtype",
    "spec_from_proto",
]
