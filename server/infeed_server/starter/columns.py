"""Formats of columns and arrays: functions that look at a data set and draft pipelines.

Parquet, CSV and Arrow need PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.sources.arrow.csv_files import CsvSource
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.arrow.saved_dataset import read_splits
from infeed_server.sources.arrow.tables import TableReader
from infeed_server.sources.mds.encodings import decoder
from infeed_server.sources.mds.index import read_index
from infeed_server.sources.mds.source import MdsSource
from infeed_server.sources.python.values import UnfitError, check_data_type
from infeed_server.starter.draft import Draft
from infeed_server.starter.listing import (
    Files,
    pipeline_name,
    relative,
    role,
    some_files,
    spread,
)
from infeed_server.storage.files import abbreviate

_ROWS_READ = 16
_EMBED = "; files may be named only: embed them by datasets' embed_table_storage"
_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""


def _arrays(data: Files) -> Iterator[Draft]:
    """Yields the draft for a `.npz`, or for `.npy` files; one for each part whose arrays have its
    name, such as `x_train`."""
    first = data.files[0]
    is_npz = first.lower().endswith(".npz")
    files = {posixpath.basename(file)[:-4]: file for file in data.files}
    stored = open_npz(first) if is_npz else {name: open_npy(file) for name, file in files.items()}
    arrays, left_out = {}, {}
    for name in sorted(stored):
        try:
            if stored[name].array.dtype.kind not in "SU":
                check_data_type(stored[name].array)
            arrays[name] = stored[name].array
        except UnfitError as error:
            left_out[name] = str(error)
    roles = {role(name) for name in arrays} or {""}
    for part in sorted(roles, reverse=True) if "" not in roles else [""]:
        chosen = {name: array for name, array in arrays.items() if part in ("", role(name))}
        counts = {len(array) if array.shape else 0 for array in chosen.values()}
        if len(counts) != 1 or 0 in counts:
            listed = ", ".join(f"{name}: {list(array.shape)}" for name, array in chosen.items())
            raise SourceError(
                f"{first}: the first dimension of each array must count the samples, as many in "
                f"all: {listed or left_out}; choose some by fields: {{NAME: ARRAY}}, or save each "
                "part of the data in a file of its own"
            )
        fields = {_without_role(name) if part else name: name for name in chosen}
        is_one = is_npz or len(files) == 1
        paths = {field: relative(files.get(n, first), data.target) for field, n in fields.items()}
        source: dict[str, Any] = {"arrays": relative(first, data.target) if is_one else paths}
        if is_npz and (part or left_out):
            source["fields"] = fields
        draft = Draft(pipeline_name(f"{data.name}-{part}"), source, counts.pop())
        for field, name in fields.items():
            draft.add_array(field, chosen[name], [*fields])
        draft.leave_out(left_out)
        yield draft


def _without_role(name: str) -> str:
    """Returns the name of a field without its part: `x` of `x_train`."""
    return "_".join(part for part in re.split(r"[\W_]+", name) if not role(part)) or name


def _csv(data: Files) -> Iterator[Draft]:
    """Yields the draft for CSVs of numbers and text."""
    source = CsvSource(csv=[*data.files])
    draft = Draft(data.name, {"csv": data.pattern}, len(tables := source.open()))
    _add_columns(draft, tables, source)
    draft.notes.append("columns can be one array: columns: {x: [width, height], label: species}")
    yield draft


def _parquet(data: Files) -> Iterator[Draft]:
    """Yields the draft for Parquet files."""
    source = ParquetSource(parquet=[*data.files])
    draft = Draft(data.name, {"parquet": data.pattern}, len(tables := source.open()))
    if tables.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(tables.group_rows)
        draft.shuffle |= {"mode": "window", "block": block, "window": block * 4}
    _add_columns(draft, tables, source.model_copy(update={"parquet": some_files(data.files)}))
    yield draft


def _huggingface(data: Files) -> Iterator[Draft]:
    """Yields a draft for a saved data set, or for each split of one."""
    (folder,) = data.files
    found, problems = [], []
    for split in read_splits(folder) or [folder]:
        source = HuggingFaceSource(huggingface=split)
        try:
            tables = source.open()
        except SourceError as error:  # a split without rows
            problems.append(error)
            continue
        name = data.name if split == folder else f"{data.name}-{posixpath.basename(split)}"
        text = {"huggingface": relative(split, data.target)}
        found.append(Draft(pipeline_name(name), text, len(tables)))
        _add_columns(found[-1], tables, source)
    if not found:
        raise problems[0]
    found[0].notes += [f"a split is left out: {problem}" for problem in problems]
    yield from found


def _add_columns(draft: Draft, tables: TableReader, source: Any) -> None:
    """Adds the columns that a batch can have; `source` is what is looked at."""
    fields: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    left_out = {**tables.left_out}
    for field in tables.fields:
        alone = source.model_copy(update={"columns": (field.name,), "shapes": None}).open()
        values, nulls = _rows(alone, field.name)
        sizes = {np.shape(value) for value in values}
        if not values or nulls > len(values):
            left_out[field.name] = f"{nulls} of {nulls + len(values)} rows have a null" + _EMBED * (
                field.name.endswith(".bytes")
            )
        elif field.varies and len(sizes) > 1:
            left_out[field.name] = "its lists differ in length; a map with python: true can pad"
        else:
            fields[field.name] = field, values
            shapes |= {field.name: [*sizes.pop()]} if field.varies else {}
            draft.bad = f"{field.name} has nulls; others take their places" if nulls else draft.bad
    draft.leave_out(left_out)
    if not fields:
        raise SourceError(f"{draft.name}: no column that can be served: {draft.notes}")
    draft.source |= {"columns": [*fields]} | ({"shapes": shapes} if shapes else {})
    for name, (field, values) in fields.items():
        draft.add(name, str(field), values, [*fields])
    for name, classes in tables.classes.items():
        draft.fields[name] += f", classes: {abbreviate(classes)}" if name in fields else ""


def _rows(tables: TableReader, name: str) -> tuple[list[Any], int]:
    """Returns the values of a column in some rows, and how many of them are null."""
    # Together in some places, as each costs the row group that it is in.
    starts = spread(len(tables), _ROWS_READ // 4)
    rows = sorted({first + row for first in starts for row in range(4)} & {*range(len(tables))})
    with suppress(SampleError):
        return [*tables.read_arrays(np.array(rows))[name]], 0
    values: list[Any] = []
    for row in rows:
        with suppress(SampleError):
            values += [*tables.read_arrays(np.array([row]))[name]]
    return values, len(rows) - len(values)


def _mds(data: Files) -> Iterator[Draft]:
    """Yields the draft for a folder of Mosaic Streaming."""
    (folder,) = data.files
    left_out = {}
    columns = read_index(folder)[0].columns
    for name, encoding, size in zip(*columns, strict=True):
        try:
            decoder(name, encoding, size)
        except SourceError:
            left_out[name] = encoding
    names = [name for name in columns[0] if name not in left_out]
    if not names:
        raise SourceError(f"{folder}: no column that can be served: {left_out}")
    reader = MdsSource(mds=folder, fields=tuple(names)).open()
    left_out |= {
        field.name: f"its shape varies: {field}" for field in reader.fields if field.varies
    }
    fields = {field.name: str(field) for field in reader.fields if not field.varies}
    read = reader.read(np.array(spread(len(reader), _ROWS_READ)))
    source = {"mds": data.pattern, **({"fields": [*fields]} if left_out else {})}
    draft = Draft(data.name, source, len(reader))
    for name, kind in fields.items():
        draft.add(name, kind, [*read[name]], [*fields])
    draft.leave_out(left_out)
    yield draft


COLUMN_DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    "arrays": _arrays,
    "csv": _csv,
    "huggingface": _huggingface,
    "mds": _mds,
    "parquet": _parquet,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
