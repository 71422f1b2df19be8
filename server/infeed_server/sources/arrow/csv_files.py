"""The `csv` source: rows of CSV files, in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from infeed.shared.errors import SourceError
from infeed_server.sources.arrow.fields import SEVERAL, pyarrow
from infeed_server.sources.arrow.tables import ColumnNames, Part, TableReader
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback, require_names
from infeed_server.storage.faults import one_line
from infeed_server.storage.files import abbreviate, read_bytes
from infeed_server.storage.stamp import StoredFile

_NUMBER = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_TYPES = {
    "int64": r"^(0|-?[1-9][0-9]*)$",
    "float64": _NUMBER,
    "bool_": r"^([Tt]rue|[Ff]alse|TRUE|FALSE)$",
    "string": "",
}
"""Type of Arrow → pattern of all cells of a column. A code such as 007 is text."""

_Columns = str | Annotated[list[str], Field(min_length=1)]
"""A column, or several that become one array."""


class CsvSource(FilesDefinition):
    """CSV files whose first line names the columns, in the sorted order of their paths."""

    kind: ClassVar[str] = "csv"

    csv: Paths
    """CSV files, in UTF-8 and with commas: a path, a glob, or a list of them."""
    columns: ColumnNames | Annotated[dict[str, _Columns], Field(min_length=1)] | None = None
    """Columns to serve, each a field; or fields by name, each a column, or a list of columns as in
    `{x: [width, height], label: species}`, which become one array; by default each column."""

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> CsvRows:  # noqa: ARG002
        """Reads the files. Raises `SourceError` and `MissingExtraError`."""
        columns = self.columns
        if isinstance(columns, tuple):
            columns = {name: name for name in columns}
        return CsvRows(self.list_files(), columns)


class CsvRows(TableReader):
    """Rows of CSV files; a part is a file."""

    def __init__(self, files: Sequence[StoredFile], columns: Mapping[str, _Columns] | None) -> None:
        """Reads the files; `columns` has the columns of each field. Raises `SourceError`."""
        digest, tables, first = hashlib.sha256(b"csv\n"), [], files[0].path
        for path, _ in files:
            content = read_bytes(path)
            digest.update(hashlib.sha256(content).digest())
            tables.append(_read_texts(path, content))
            if tables[-1].schema.names != tables[0].schema.names:
                text = f"{path} has other columns than {first}, or another order"
                raise SourceError(f"{text}; serve them as two data sets", file=path)
        whole = pyarrow().concat_tables(tables)
        names = whole.schema.names
        chosen: Mapping[str, _Columns] = columns or {name: name for name in names}
        require_names([name for value in chosen.values() for name in _names(value)], names, first)
        kinds = {field: _type_of(whole, value) for field, value in chosen.items()}
        self.set_types(kinds, None if columns is None else [*columns], {}, first)
        served = {field.name: chosen[field.name] for field in self.fields}
        described = [(field.name, str(field), served[field.name]) for field in self.fields]
        digest.update(repr(described).encode())
        self.identity = digest.hexdigest()
        self._parts: list[Part] = [
            {field: _array(table, value, kinds[field], path) for field, value in served.items()}
            for table, (path, _) in zip(tables, files, strict=True)
        ]
        self.load = self._load
        self.set_parts(files, [table.num_rows for table in tables], first)

    def _load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        return ((number, self._parts[number]) for number in parts)


def _read_texts(path: str, content: bytes) -> Any:
    """Returns a table of the cells as texts, null if they are empty. Raises `SourceError`."""
    arrow = pyarrow()
    parse = arrow.csv.ParseOptions(newlines_in_values=True)
    try:
        with arrow.csv.open_csv(arrow.BufferReader(content), parse_options=parse) as head:
            names = head.schema.names
        convert = arrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, arrow.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = arrow.csv.read_csv(
            arrow.BufferReader(content), parse_options=parse, convert_options=convert
        )
    except arrow.ArrowInvalid as error:
        text = f"{path}: no CSV in UTF-8 with as many cells in each line: {one_line(error)}"
        raise SourceError(f"{text}; write it again", file=path) from error
    counted = [str(number) for number in range(len(names))]
    if names != counted and all(re.match(_NUMBER, name) for name in names):
        text = f"{path}: its first line has no names of columns: {abbreviate(names)}"
        raise SourceError(f"{text}; write names before it", file=path)
    if len(names) == 1 and (other := re.search(r"[;\t|]", names[0])):
        text = f"{path}: its cells are separated by {other[0]!r}"
        raise SourceError(f"{text}; write it with commas", file=path)
    return table


def _names(value: _Columns) -> list[str]:
    return [value] if isinstance(value, str) else value


def _type_of(table: Any, value: _Columns) -> Any:
    """Returns the type of Arrow that all cells of the columns have, or why they have none."""
    arrow, names = pyarrow(), _names(value)
    if "" in names:
        return "without a name, such as an index of pandas"
    if any(table.schema.names.count(name) > 1 for name in names):
        return SEVERAL
    columns = [table.column(name).drop_null() for name in names]
    kind = arrow.null()
    if any(map(len, columns)):
        fitting = (kind for kind, pattern in _TYPES.items() if _match(columns, pattern))
        kind = getattr(arrow, next(fitting))()
    return kind if isinstance(value, str) else arrow.list_(kind, len(names))


def _match(columns: Sequence[Any], pattern: str) -> bool:
    compute = pyarrow().compute
    matches = (compute.match_substring_regex(column, pattern) for column in columns)
    return all(compute.all(found, min_count=0).as_py() for found in matches)


def _array(table: Any, value: _Columns, kind: Any, path: str) -> Any:
    """Returns the cells of columns as an array of Arrow. Raises `SourceError` for a number that is
    too large for its type."""
    arrow, names = pyarrow(), _names(value)
    cell = kind if isinstance(value, str) else kind.value_type
    try:
        columns = [table.column(name).cast(cell).combine_chunks() for name in names]
    except arrow.ArrowInvalid as error:
        text = f"{path}: {' or '.join(names)} has a cell that is no {cell}: {one_line(error)}"
        raise SourceError(f"{text}; leave the column out", file=path) from error
    if isinstance(value, str):
        return columns[0]
    by_row = np.arange(len(names) * table.num_rows).reshape(len(names), -1).T.ravel()
    cells = arrow.concat_arrays(columns).take(arrow.array(by_row))
    return arrow.FixedSizeListArray.from_arrays(cells, len(names))
