"""Pipeline specs as plain values: fields, data types, finish transforms, guarantees."""

from infeed.shared.spec.dtypes import (
    BYTES,
    DATA_TYPES,
    Array,
    numpy_dtype,
    shared_range,
)
from infeed.shared.spec.pipeline import (
    MAX_BATCH_SIZE,
    Cast,
    FieldSpec,
    FinishPlacement,
    FinishTransform,
    Guarantee,
    Normalize,
    OneHot,
    OnError,
    PipelineSpec,
    Remainder,
    RemainderScope,
    Spec,
    finish_from_proto,
    finish_to_proto,
)

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
    "RemainderScope",
    "Spec",
    "finish_from_proto",
    "finish_to_proto",
    "numpy_dtype",
    "shared_range",
]
