"""Finish transforms as plain values; `infeed.shared.finish` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from infeed.shared.errors import ProtocolError
from infeed.shared.spec.messages import from_message, to_message
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


_KINDS: dict[str, type[FinishTransform]] = {
    "cast": Cast,
    "normalize": Normalize,
    "one_hot": OneHot,
}


def finish_to_proto(transform: FinishTransform) -> spec_pb2.FinishTransform:
    message = spec_pb2.FinishTransform(field=transform.field)
    for name, kind in _KINDS.items():
        if isinstance(transform, kind):
            body = getattr(message, name)
            body.MergeFrom(to_message(type(body), transform))
    return message


def finish_from_proto(message: spec_pb2.FinishTransform) -> FinishTransform:
    name = message.WhichOneof("transform")
    if name is None:
        raise ProtocolError(
            f"the finish transform of field {message.field!r} is unknown to this client; upgrade "
            'infeed on the client, or connect with finish="server"'
        )
    return from_message(_KINDS[name], getattr(message, name), field=message.field)
