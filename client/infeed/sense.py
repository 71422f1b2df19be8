"""What a server says of a pipeline makes sense, or the feed ends before anything is made of it."""

from __future__ import annotations

from infeed.datatypes import BYTES
from infeed.errors import ProtocolError
from infeed.finish import finished_spec
from infeed.spec import (
    MAX_BATCH_SIZE,
    FieldSpec,
    FinishTransform,
    Normalize,
    OneHot,
    PipelineSpec,
    Spec,
)
from infeed.wire import MAX_PAYLOAD_BYTES

MAX_FINISHED_BYTES = 1 << 34
"""Of one batch after the finish transforms, which make much of little."""

_MAX_DIMENSIONS = 30
"""Of a field of one sample; NumPy takes 32 at least, and a batch has one more."""

_MAX_SAMPLES = 1 << 62
_FLOATS = ("float16", "float32", "float64", "bfloat16")
_OFFSET_BYTES = 8
"""What a byte string takes on the wire, whatever its length."""


def check(spec: PipelineSpec, slots: int) -> None:
    """For batches of that many slots. Raises `ProtocolError` that names what makes no sense."""
    _within(spec, "batch size", spec.batch_size, 1, MAX_BATCH_SIZE)
    _within(spec, "batch stride", spec.batch_stride, 0, MAX_BATCH_SIZE)
    _within(spec, "seed", spec.seed, 0, (1 << 63) - 1)
    _within(spec, "number of samples", spec.sample_count or 0, 0, _MAX_SAMPLES)
    _check_fields(spec, spec.wire_spec, slots, MAX_PAYLOAD_BYTES)
    _check_fields(spec, spec.element_spec, slots, MAX_FINISHED_BYTES)
    fields = spec.wire_spec
    for transform in spec.finish_transforms:
        after = finished_spec(fields, [transform])
        before = {field.name: field for field in fields}
        _check_transform(spec, transform, before[transform.field])
        fields = after
    if fields != spec.element_spec:
        raise _wrong(spec, f"{_told(fields)} after the finish transforms", _told(spec.element_spec))


def _within(spec: PipelineSpec, what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _wrong(spec, f"{what} {value}", f"from {least} to {most}")


def _check_fields(spec: PipelineSpec, fields: Spec, slots: int, most: int) -> None:
    names = [field.name for field in fields]
    if not fields or len(set(names)) < len(names):
        raise _wrong(spec, f"the fields {', '.join(map(repr, names))}", "one at least, each once")
    for field in fields:
        if len(field.shape) > _MAX_DIMENSIONS or any(size < 0 for size in field.shape):
            raise _wrong(spec, f"the shape {list(field.shape)} of field {field.name!r}", "sizes")
    size = slots * sum(_bytes(field) for field in fields)
    if size > most:
        raise _wrong(spec, f"batches of {size} bytes ({_told(fields)})", f"at most {most}")


def _bytes(field: FieldSpec) -> int:
    if field.sample_bytes is None:
        return field.elements * _OFFSET_BYTES
    return field.sample_bytes


def _check_transform(spec: PipelineSpec, transform: FinishTransform, field: FieldSpec) -> None:
    told = f"{transform}, where the field is {field}"
    if BYTES in (field.data_type, transform.data_type):
        raise _wrong(spec, told, "numbers")
    if isinstance(transform, OneHot):
        if transform.depth < 1 or "int" not in field.data_type:
            raise _wrong(spec, told, "integers, and a depth of 1 at least")
    elif isinstance(transform, Normalize):
        counts = {0, 1, *field.shape[-1:]}
        if transform.data_type not in _FLOATS or not counts.issuperset(
            (len(transform.mean), len(transform.std))
        ):
            raise _wrong(spec, told, "floats, and one number or one for each entry")


def _told(fields: Spec) -> str:
    return ", ".join(map(str, fields))


def _wrong(spec: PipelineSpec, found: str, wanted: str) -> ProtocolError:
    return ProtocolError(
        f"the server describes the pipeline {spec.name!r} with {found}; it has to be {wanted}",
        pipeline=spec.name,
    )


__all__ = ["MAX_FINISHED_BYTES", "check"]
