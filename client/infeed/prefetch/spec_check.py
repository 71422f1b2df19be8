"""Checks of a pipeline's spec, and of the values for empty slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from infeed.shared.arguments import MAX_INT64, did_you_mean
from infeed.shared.errors import InvalidRequestError, ProtocolError
from infeed.shared.finish import finished_spec
from infeed.shared.spec import (
    BYTES,
    MAX_BATCH_SIZE,
    Elementwise,
    Erase,
    FieldSpec,
    FinishTransform,
    MixPairs,
    Normalize,
    OneHot,
    PipelineSpec,
    Spec,
    changed_fields,
    numpy_dtype,
    read_fields,
)
from infeed.wire.batch import MAX_PAYLOAD_BYTES

MAX_FINISHED_BYTES = 1 << 34
"""Maximum bytes of one batch after the finish transforms, which can make it much larger."""

_MAX_DIMENSIONS = 30
"""Dimensions of a field of one sample: NumPy supports at least 32, and a batch adds one."""

_FLOATS = ("float16", "float32", "float64", "bfloat16")
_OFFSET_BYTES = 8
"""Bytes of an encoded byte string besides its content."""


def validate_spec(spec: PipelineSpec, slots: int) -> None:
    """Raises `ProtocolError` for a spec that is invalid for batches with this number of slots."""
    for name, value, low, high in (
        ("batch size", spec.batch_size, 1, MAX_BATCH_SIZE),
        ("batch stride", spec.batch_stride, 0, MAX_BATCH_SIZE),
        ("seed", spec.seed, 0, MAX_INT64),
        ("number of samples", spec.sample_count or 0, 0, 1 << 62),
    ):
        if not low <= value <= high:
            raise _invalid(spec, f"{name} {value}", f"from {low} to {high}")
    _check_fields(spec, spec.wire_spec, slots, MAX_PAYLOAD_BYTES)
    _check_fields(spec, spec.element_spec, slots, MAX_FINISHED_BYTES)
    fields = spec.wire_spec
    for transform in spec.finish_transforms:
        next_fields = finished_spec(fields, [transform])
        by_name = {field.name: field for field in fields}
        if isinstance(transform, MixPairs):
            _check_mix(spec, transform, by_name, slots)
        elif isinstance(transform, Erase):
            _check_erase(spec, transform, by_name)
        else:
            _check_transform(spec, transform, by_name[transform.field])
        fields = next_fields
    if fields != spec.element_spec:
        raise _invalid(spec, "the finish transforms", "the element spec")


def _check_fields(spec: PipelineSpec, fields: Spec, slots: int, max_bytes: int) -> None:
    names = [field.name for field in fields]
    if not fields or len(set(names)) < len(names):
        raise _invalid(spec, f"fields {', '.join(map(repr, names))}", "at least one, each once")
    for field in fields:
        if len(field.shape) > _MAX_DIMENSIONS or any(size < 0 for size in field.shape):
            sizes = f"at most {_MAX_DIMENSIONS} sizes of at least 0"
            raise _invalid(spec, f"shape {list(field.shape)} of field {field.name!r}", sizes)
    of_strings = [field.elements * _OFFSET_BYTES for field in fields if field.data_type == BYTES]
    size = slots * (sum(of_strings) + sum(field.sample_bytes or 0 for field in fields))
    if size > max_bytes and slots > spec.batch_size:
        raise InvalidRequestError(
            f"batch size {slots} makes batches of {size} bytes; the limit is {max_bytes}: use a "
            f"smaller one, such as {spec.batch_size} of pipeline {spec.name!r}",
            batch_size=slots,
        )
    if size > max_bytes:
        raise _invalid(spec, f"batches of {size} bytes", f"at most {max_bytes}")


def _check_mix(
    spec: PipelineSpec, transform: MixPairs, fields: Mapping[str, FieldSpec], slots: int
) -> None:
    pixels, label, draws = (fields[name] for name in read_fields(transform))
    is_like = pixels.data_type == "uint8" and len(pixels.shape) == 3
    if transform.partner:
        is_like = is_like and label.data_type != BYTES
    else:
        is_like = is_like and label.data_type == "float32" and len(label.shape) > 0
    if not is_like or (draws.data_type, draws.shape) != ("float32", (6,)):
        expected = "pixels of uint8, labels of float32 for each class or a partner, six draws"
        raise _invalid(spec, f"{transform} on {pixels}, {label}, {draws}", expected)
    if slots % 2:
        raise InvalidRequestError(
            f"batch size {slots} is odd, and pipeline {spec.name!r} mixes the samples of "
            f"neighbouring slots; use an even one, such as {slots + 1}",
            batch_size=slots,
        )


def _check_erase(spec: PipelineSpec, transform: Erase, fields: Mapping[str, FieldSpec]) -> None:
    pixels, draws = (fields[name] for name in read_fields(transform))
    is_like = pixels.data_type == "uint8" and len(pixels.shape) == 3
    is_like = is_like and (draws.data_type, draws.shape) == ("int32", (5,))
    if not is_like or (transform.value or 0) > np.iinfo(np.uint8).max:
        expected = "pixels of uint8, five draws, a value to 255"
        raise _invalid(spec, f"{transform} on {pixels}, {draws}", expected)


def _check_transform(spec: PipelineSpec, transform: Elementwise, field: FieldSpec) -> None:
    expected = ""
    if BYTES in (field.data_type, transform.data_type):
        expected = "numbers"
    elif isinstance(transform, OneHot):
        if transform.depth < 1 or "int" not in field.data_type:
            expected = "integers, and a depth of at least 1"
    elif isinstance(transform, Normalize):
        counts = {len(transform.mean), len(transform.std)} - {0, 1, *field.shape[-1:]}
        if transform.data_type not in _FLOATS or counts:
            expected = "floats, and one number or one for each channel"
    if expected:
        raise _invalid(spec, f"{transform} on field {field}", expected)


def _invalid(spec: PipelineSpec, actual: str, expected: str) -> ProtocolError:
    return ProtocolError(
        f"invalid spec of pipeline {spec.name!r} from the server: {actual}; expected: {expected}",
        pipeline=spec.name,
    )


def check_empty(empty: Mapping[str, float], spec: Spec, pending: Sequence[FinishTransform]) -> None:
    """Raises `InvalidRequestError` for a value that a field cannot hold, and for a field that the
    feed's consumer makes with the pending transforms."""
    types = {field.name: field.data_type for field in spec}
    for name, value in empty.items():
        problem = ""
        if name not in types:
            problem = f"there is no such field{did_you_mean(name, types)}; fields: "
            problem += ", ".join(types)
        elif any(name in changed_fields(transform) for transform in pending):
            problem = 'its finish transforms are left to the consumer; give finish="trainer"'
        elif not _has(types[name], value):
            problem = f"its type is {types[name]}; cast it in the pipeline to a type that holds it"
        if problem:
            raise InvalidRequestError(f"empty: field {name!r} cannot be {value}: {problem}")


def _has(data_type: str, value: float) -> bool:
    """Returns whether a type can hold a number; floats may round it."""
    if data_type == BYTES:
        return False
    dtype = numpy_dtype(data_type)
    with np.errstate(all="ignore"):
        return dtype.kind not in "iub" or bool(np.asarray(value).astype(dtype) == value)
