"""Sample search by index, by the end of a file's path, or by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array
from infeed_server.pipeline.indexed_plan import IndexedPlan


def find_samples(plan: IndexedPlan, text: str) -> Iterator[int]:
    """Yields the samples that an index, the end of a path, or `FIELD:VALUE` names. Raises
    `InvalidRequestError` for a field whose values are unknown."""
    source = plan.source
    field, separator, value = text.partition(":")
    if text.isdecimal() and int(text) < len(source):
        yield int(text)
    elif separator and (field == "label" or field in source.known_fields()):
        values = source.whole_field(field)
        if values is None:
            raise InvalidRequestError(
                f"{plan.spec.name!r}: finding a value of the field {field!r} would take reading "
                "all samples; give an index, or the end of a file's path",
                looked_for=text,
            )
        names = source.classes.get(field, ())
        equal = _equal(values, value, names).reshape(len(source), -1)
        yield from map(int, np.flatnonzero(equal.any(1)))
    else:
        path, _, offset = text.rpartition("@") if _has_offset(text) else (text, "", "")
        for samples in source.places.samples_in(path.lstrip("/")):
            for index in samples:
                if not offset or source.provenance(index).offset == int(offset):
                    yield index


def _has_offset(text: str) -> bool:
    return text.rpartition("@")[2].isdecimal()


def _equal(values: Array, text: str, names: Sequence[str]) -> Array:
    """Returns a mask of the values that equal a text, which can be a class name. An array of rows
    equals it if one of its rows does."""
    if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
        return np.array([_equal(rows, text, names).any() for rows in values])
    if values.dtype.kind in "SUO":
        return np.asarray(values == (text if values.dtype.kind == "U" else text.encode()))
    try:
        number = names.index(text) if text in names else _number(text)
    except ValueError:
        return np.zeros(0, bool)
    return np.asarray(values == number)


def _number(text: str) -> float:
    return int(text) if text.lstrip("-").isdecimal() else float(text)
