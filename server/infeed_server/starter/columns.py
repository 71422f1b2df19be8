"""Formats of columns and arrays: functions that look at a data set and draft pipelines.

Parquet, CSV and Arrow need PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed.shared.spec import BYTES
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.sources.arrays.source import ArrayReader
from infeed_server.sources.arrow.row_groups import RowGroups
from infeed_server.sources.arrow.saved_dataset import read_splits
from infeed_server.sources.arrow.tables import TableReader
from infeed_server.sources.columns import ColumnSource
from infeed_server.sources.mds.encodings import decoder
from infeed_server.sources.mds.index import read_index
from infeed_server.sources.python.values import describe
from infeed_server.sources.registry import source_class
from infeed_server.starter.draft import Draft
from infeed_server.starter.listing import Files, pipeline_name, relative, role, spread
from infeed_server.storage.files import abbreviate

_ROWS_READ = 16
_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""


def _arrays(data: Files) -> Iterator[Draft]:
    """Yields the draft for a `.npz`, or for `.npy` files; one for each part whose arrays have its
    name, such as `x_train`."""
    first = data.files[0]
    files = {posixpath.basename(file)[:-4]: file for file in data.files}
    is_npz = first.lower().endswith(".npz")
    stored = open_npz(first) if is_npz else {name: open_npy(file) for name, file in files.items()}
    roles = {role(name) for name in stored}
    for part in sorted(roles, reverse=True) if "" not in roles else [""]:
        fields = {_without_role(n) if part else n: n for n in stored if part in ("", role(n))}
        reader = ArrayReader({field: stored[name] for field, name in fields.items()})
        paths = {f: relative(files.get(n, first), data.target) for f, n in fields.items()}
        is_one = is_npz or len(files) == 1
        source: dict[str, Any] = {"arrays": next(iter(paths.values())) if is_one else paths}
        source |= {"fields": fields} if is_npz and part else {}
        draft = Draft(pipeline_name(f"{data.name}-{part}"), source, len(reader))
        kinds: dict[str, tuple[str, Any]] = {}
        values = {**reader.read(np.array(spread(len(reader)))), **reader.known_fields()}
        for name, spec in reader.columns.items():
            kind = BYTES if spec.dtype == tf.string else spec.dtype.name
            kinds[name] = describe(kind, tuple(spec.shape)), values[name]
        draft.add(kinds)
        yield draft


def _without_role(name: str) -> str:
    """Returns the name of a field without its part: `x` of `x_train`."""
    return "_".join(part for part in re.split(r"[\W_]+", name) if not role(part)) or name


def _columns(kind: str, data: Files) -> Iterator[Draft]:
    """Yields a draft for a source of columns, or for each split that has rows."""
    splits = read_splits(data.files[0]) if kind == "huggingface" else []
    drafts, problems = [], []
    paths: list[Any] = [relative(split, data.target) for split in splits]
    for path in paths or [data.pattern]:
        name = f"{data.name}-{posixpath.basename(str(path))}" if splits else data.name
        try:
            drafts.append(_table(pipeline_name(name), {kind: path}, data.target))
        except SourceError as error:
            problems.append(error)
    if not drafts:
        raise problems[0]
    drafts[0].notes += [f"a split is left out: {problem}" for problem in problems]
    yield from drafts


def _table(name: str, source: dict[str, Any], target: Path) -> Draft:
    """Returns the draft for a source, with the columns that a batch can have."""
    definition: Any = source_class(next(iter(source))).model_validate(source).resolve(target)
    key = "fields" if "mds" in source else "columns"
    reader = definition.open()
    draft = Draft(name, source, len(reader))
    if isinstance(reader, RowGroups) and reader.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(reader.group_rows)
        draft.shuffle |= {"mode": "window", "block": block, "window": block * 4}
    # Together in some places, as each costs the row group that it is in.
    starts = spread(len(reader), _ROWS_READ // 4)
    rows = sorted({first + row for first in starts for row in range(4)} & {*range(len(reader))})
    values = _values(definition, key, reader, rows)
    # A program that changed the type of a column may have kept the names of its classes.
    numbers = {one.name for one in reader.fields if not one.shape and "int" in one.data_type}
    classes = {name: found for name, found in reader.classes.items() if name in numbers}
    left_out = {**getattr(reader, "left_out", {})}
    null_counts = reader.count_nulls() if isinstance(reader, TableReader) else {}
    served: dict[str, tuple[str, Any]] = {}
    shapes: dict[str, list[int]] = {}
    for field in reader.fields:
        found = values[field.name]
        nulls, sizes = len(rows) - len(found), {np.shape(value) for value in found}
        if nulls > len(found):
            left_out[field.name] = f"{nulls} of {len(rows)} rows have a null"
        elif field.varies and (len(sizes) > 1 or key == "fields"):
            left_out[field.name] = f"its shape varies: {field}; a map with python: true can pad"
        elif field.name in classes and {*map(int, found)} == {-1}:
            left_out[field.name] = f"no label: -1 in all of {len(found)} rows looked at"
        else:
            served[field.name] = str(field), found
            shapes |= {field.name: [*sizes.pop()]} if field.varies else {}
            nulls = nulls or null_counts.get(field.name, 0)
            draft.bad = f"{field.name} has nulls" if nulls else draft.bad
    if not served:
        raise SourceError(f"{name}: no column that can be served: {left_out}")
    draft.source |= {key: [*served]} if left_out else {}
    draft.source |= {"shapes": shapes} if shapes else {}
    draft.leave_out(left_out)
    draft.add(served)
    for named in classes.keys() & served.keys():
        draft.fields[named] += f", classes: {abbreviate(classes[named])}"
        if count := sum(not 0 <= number < len(classes[named]) for number in served[named][1]):
            draft.notes.append(f"{named} has no class, such as -1, in {count} rows looked at")
    return draft


def _values(
    definition: Any, key: str, reader: ColumnSource, rows: Sequence[int]
) -> Mapping[str, list[Any]]:
    """Returns the values of each column in some rows, without nulls."""
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


def _mds(data: Files) -> Iterator[Draft]:
    """Yields the draft for a folder of Mosaic Streaming."""
    left_out = {}
    columns = read_index(data.files[0])[0].columns
    for name, encoding, size in zip(*columns, strict=True):
        try:
            decoder(name, encoding, size)
        except SourceError:
            left_out[name] = encoding
    names = {"fields": [name for name in columns[0] if name not in left_out]} if left_out else {}
    draft = _table(data.name, {"mds": data.pattern, **names}, data.target)
    draft.leave_out(left_out)
    yield draft


COLUMN_DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    **{kind: partial(_columns, kind) for kind in ("csv", "huggingface", "parquet")},
    "arrays": _arrays,
    "mds": _mds,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
