"""Finish transforms as plain values; `infeed.shared.finish` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from infeed.shared.errors import ProtocolError
from infeed.shared.spec.dtypes import data_type_from_proto, data_type_to_proto
from infeed.v1 import spec_pb2


@dataclass(frozen=True)
class Cast:
    """Converts the elements of `field` to `data_type`.

    Floats become integers by truncation towards zero; the nearest value of an integer type
    represents one that is out of its range, and 0 represents NaN.
    """

    field: str
    data_type: str


@dataclass(frozen=True)
class Normalize:
    """((float(x) / scale) - mean) / std, each step rounded once in `data_type`.

    `mean` and `std` hold no number (no such step), one, or one for each entry of the last
    dimension.
    """

    field: str
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    data_type: str = "float32"


@dataclass(frozen=True)
class OneHot:
    """Adds a last dimension of `depth` entries: `on_value` at the label, else `off_value`."""

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
        f"the finish transform of field {message.field!r} is unknown to this client; upgrade "
        'infeed on the client, or connect with finish="server"'
    )
