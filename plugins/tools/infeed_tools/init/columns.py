"""Columns: the fields of a draft whose source knows their types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed.shared.spec import BYTES
from infeed_formats.columns import ColumnSource
from infeed_server.sources.registry import source_class
from infeed_server.storage.files import abbreviate
from infeed_tools.init.draft import Draft
from infeed_tools.init.listing import spread
from infeed_tools.init.looks import ImageLook

_ROWS_READ = 16


def open_columns(source: dict[str, Any], target: Path) -> tuple[Any, Any]:
    """Returns the definition of a source and its reader. Raises `SourceError`."""
    definition: Any = source_class(next(iter(source))).model_validate(source).resolve(target)
    return definition, definition.open()


def add_columns(
    draft: Draft,
    definition: Any,
    reader: ColumnSource,
    left_out: Mapping[str, str] = {},
    null_counts: Mapping[str, int] = {},
) -> None:
    """Adds the columns that a batch can hold; `left_out` are others, with the reason. Raises
    `SourceError` if there are none."""
    options = type(definition).model_fields
    key = "columns" if "columns" in options else "fields"
    has_shapes = "shapes" in options
    # In groups at a few places, because each place costs a row group.
    starts = spread(len(reader), _ROWS_READ // 4)
    rows = sorted({first + row for first in starts for row in range(4)} & {*range(len(reader))})
    values = _values(definition, key, reader, rows)
    # A program that changed a column's type may have kept the names of its classes.
    numbers = {one.name for one in reader.fields if not one.shape and "int" in one.data_type}
    classes = {name: found for name, found in reader.classes.items() if name in numbers}
    all_left_out = {**left_out}
    served: dict[str, tuple[str, Any]] = {}
    shapes: dict[str, list[int]] = {}
    pictures = {name for name, found in values.items() if _are_pictures(found)}
    for field in reader.fields:
        found = values[field.name]
        nulls, sizes = len(rows) - len(found), {np.shape(value) for value in found}
        count = nulls or null_counts.get(field.name, 0)
        beside = {name for name in pictures - {field.name} if _struct(name) == _struct(field.name)}
        if count and beside and field.data_type == BYTES and field.name not in pictures:
            all_left_out[field.name] = f"it has nulls, and only describes {min(beside)}"
        elif nulls > len(found):
            all_left_out[field.name] = f"{nulls} of {len(rows)} rows are null"
        elif field.varies and (len(sizes) > 1 or not has_shapes):
            all_left_out[field.name] = f"its shape varies: {field}; a map with python: true can pad"
        elif field.name in classes and {*map(int, found)} == {-1}:
            all_left_out[field.name] = f"no label: -1 in all {len(found)} rows read"
        else:
            served[field.name] = str(field), found
            shapes |= {field.name: [*sizes.pop()]} if field.varies else {}
            draft.bad = f"{field.name} has nulls" if count else draft.bad
    if not served:
        raise SourceError(f"{draft.name}: no column can be served: {all_left_out}")
    draft.source |= {key: [*served]} if all_left_out else {}
    draft.source |= {"shapes": shapes} if shapes else {}
    draft.leave_out(all_left_out)
    draft.add(served)
    for named in classes.keys() & served.keys():
        draft.fields[named] += f", classes: {abbreviate(classes[named])}"
        if count := sum(not 0 <= number < len(classes[named]) for number in served[named][1]):
            draft.notes.append(f"{named} has no class, such as -1, in {count} of the rows read")


def _are_pictures(values: Sequence[Any]) -> bool:
    is_bytes = len(values) > 0 and isinstance(values[0], bytes)
    return is_bytes and len(ImageLook.at(values).sizes) == len(values)


def _struct(name: str) -> str:
    """Returns the column that contains a field, or the field's own name."""
    return name.rpartition(".")[0] or name


def _values(
    definition: Any, key: str, reader: ColumnSource, rows: Sequence[int]
) -> Mapping[str, list[Any]]:
    """Returns the values of each column in these rows, without nulls."""
    with suppress(SampleError):
        return _read(reader, rows)
    found: dict[str, list[Any]] = defaultdict(list)
    for name in reader.columns:
        alone = definition.model_copy(update={key: (name,)}).open()
        for row in rows:
            with suppress(SampleError):
                found[name] += _read(alone, [row])[name]
    return found


def _read(reader: ColumnSource, rows: Sequence[int]) -> Mapping[str, list[Any]]:
    columns = reader.read(np.array(rows))
    named = [
        {name: tf.constant(column[n]) for name, column in columns.items()}
        for n, _ in enumerate(rows)
    ]
    samples = [reader.parse(sample) for sample in named]
    return {name: [sample[name].numpy() for sample in samples] for name in columns}
