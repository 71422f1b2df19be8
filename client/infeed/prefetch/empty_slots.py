"""Values of empty slots: the option `empty` against the fields that a feed delivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from infeed.shared.arguments import did_you_mean
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import BYTES, FinishTransform, Spec, numpy_dtype


def check_empty(empty: Mapping[str, float], spec: Spec, pending: Sequence[FinishTransform]) -> None:
    """Raises `InvalidRequestError` for a value that a field cannot have, and for a field that the
    consumer of the feed makes by the pending transforms."""
    types = {field.name: field.data_type for field in spec}
    for name, value in empty.items():
        problem = ""
        if name not in types:
            problem = f"there is no such field{did_you_mean(name, types)}; fields: "
            problem += ", ".join(types)
        elif any(transform.field == name for transform in pending):
            problem = 'its finish transforms are left to the consumer; give finish="trainer"'
        elif not _has(types[name], value):
            problem = f"it is of type {types[name]}; cast it in the pipeline to one that has it"
        if problem:
            raise InvalidRequestError(f"empty: field {name!r} cannot be {value}: {problem}")


def _has(data_type: str, value: float) -> bool:
    """Returns whether a type has a number; a type of floats has a rounded one."""
    if data_type == BYTES:
        return False
    dtype = numpy_dtype(data_type)
    with np.errstate(all="ignore"):
        return dtype.kind not in "iub" or bool(np.asarray(value).astype(dtype) == value)
