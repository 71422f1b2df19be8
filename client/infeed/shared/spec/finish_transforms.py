"""Finish transforms, as plain values: what runs where a batch is consumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from infeed.shared.errors import ProtocolError
from infeed.shared.spec.messages import from_message, to_message
from infeed.v1 import spec_pb2


@dataclass(frozen=True)
class Cast:
    """Converts `field` to `data_type`. Floats are truncated towards zero, clipped to an integer
    type's range, and NaN becomes 0."""

    field: str
    data_type: str


@dataclass(frozen=True)
class Normalize:
    """((float(x) / scale) - mean) / std, each step rounded once in `data_type`; `mean` and `std`
    hold no number (no such step), one, or one for each entry of the last dimension."""

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


@dataclass(frozen=True)
class MixPairs:
    """Mixes pixels and labels of slots 2i and 2i + 1, as the `draws` of slot 2i specify: the
    other's share of the pixels (in 256ths) and of the label; top, left, bottom and right of a
    rectangle with the other's pixels. The field `draws` is then removed. With a `partner`, a new
    field for the other's label, labels stay, and `own_share` holds each one's share."""

    field: str
    label: str
    draws: str
    partner: str = ""
    own_share: str = ""


@dataclass(frozen=True)
class Erase:
    """Covers a rectangle of each picture by a `value`, or by noise. Its `draws` are top, left,
    bottom, right, and the seed of noise. The batch has no field `draws` afterwards."""

    field: str
    draws: str
    value: int | None = None


NOISE_FACTORS = (2654435761, 2246822507, 3266489917)
"""Factors of the noise of `Erase`, as spec.proto has it."""

Elementwise: TypeAlias = Cast | Normalize | OneHot
"""A finish transform of one field, which needs no other."""

Drawing: TypeAlias = MixPairs | Erase
"""A finish transform that needs what the server draws for each sample, in a field `draws`."""

FinishTransform: TypeAlias = Elementwise | Drawing
"""A transform that runs where the batch is consumed."""

_KINDS: dict[str, type[FinishTransform]] = {
    "cast": Cast,
    "normalize": Normalize,
    "one_hot": OneHot,
    "mix_pairs": MixPairs,
    "erase": Erase,
}


def read_fields(transform: FinishTransform) -> tuple[str, ...]:
    """Returns the fields that a transform needs."""
    if isinstance(transform, MixPairs):
        return transform.field, transform.label, transform.draws
    return (transform.field, *((transform.draws,) if isinstance(transform, Erase) else ()))


def changed_fields(transform: FinishTransform) -> tuple[str, ...]:
    """Returns the fields that a transform changes."""
    if isinstance(transform, MixPairs):
        pair = (transform.partner, transform.own_share)
        return (transform.field, *(pair if transform.partner else (transform.label,)))
    return (transform.field,)


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
