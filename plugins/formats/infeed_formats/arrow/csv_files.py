"""The `csv` source: rows of CSV files, in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from infeed.shared.errors import SourceError
from infeed_formats.arrow.fields import SEVERAL, pyarrow
from infeed_formats.arrow.tables import ColumnNames, Part, TableReader, choose_columns, rows_of
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback, require_names
from infeed_server.storage.faults import one_line
from infeed_server.storage.files import abbreviate, read_bytes
from infeed_server.storage.stamp import StoredFile

_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")
_TEXT = r"^[+-]?(0[0-9]|[0-9]{19}|[^-+0-9.])"
"""Text that a cast would turn into a float64: codes such as 007, integers beyond int64, nan."""

_Columns = str | Annotated[list[str], Field(min_length=1)]
"""One column, or several that become one array."""


class CsvSource(FilesDefinition):
    """CSV files whose first line names the columns, in the sorted order of their paths."""

    kind: ClassVar[str] = "csv"

    csv: Paths
    """CSV files in UTF-8, with commas: a path, a glob, or a list of them."""
    columns: ColumnNames | Annotated[dict[str, _Columns], Field(min_length=1)] | None = None
    """Columns to serve, each as a field. Or fields by name, each a column or a list of columns that
    become one array, as in `{x: [width, height], label: species}`; by default every column."""

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> CsvRows:  # noqa: ARG002
        """Reads the files. Raises `SourceError` and `MissingExtraError`."""
        columns = self.columns
        if isinstance(columns, tuple):
            columns = {name: name for name in columns}
        return CsvRows(self.list_files(), columns)


class CsvRows(TableReader):
    """Rows of CSV files; a part is a file."""

    def __init__(self, files: Sequence[StoredFile], columns: Mapping[str, _Columns] | None) -> None:
        """Reads the `columns` of each field from the files. Raises `SourceError`."""
        digest, tables, first = hashlib.sha256(b"csv\n"), [], files[0].path
        for path, _ in files:
            content = read_bytes(path)
            digest.update(hashlib.sha256(content).digest())
            tables.append(_read_texts(path, content))
            if tables[-1].schema.names != tables[0].schema.names:
                text = f"{path} and {first} differ in columns or their order"
                raise SourceError(f"{text}; serve them as two data sets", file=path)
        whole = pyarrow().concat_tables(tables)
        names = whole.schema.names
        chosen: Mapping[str, _Columns] = columns or {name: name for name in names}
        require_names([name for value in chosen.values() for name in _names(value)], names, first)
        kinds = {field: _type_of(whole, value) for field, value in chosen.items()}
        for field, value in chosen.items():
            _refuse_losses(first, whole, value, kinds[field])
        served = choose_columns(kinds, None if columns is None else [*columns], {}, first)
        described = [(field.name, str(field), chosen[field.name]) for field in served.fields]
        digest.update(repr(described).encode())
        self._parts: list[Part] = [
            {name: _array(table, value, kinds[name]) for name, _, value in described}
            for table in tables
        ]
        rows = rows_of(files, [table.num_rows for table in tables], first)
        super().__init__(rows, served, digest.hexdigest())

    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        return ((number, self._parts[number]) for number in parts)


def _read_texts(path: str, content: bytes) -> Any:
    """Returns a table of the cells as text, with nulls for empty ones. Raises `SourceError`."""
    arrow = pyarrow()
    first = content.partition(b"\n")[0]
    if b"," not in first and (other := re.search(rb"[;\t|]", first)):
        text = f"{path}: its cells are separated by {other[0].decode()!r}"
        raise SourceError(f"{text}; use commas, and points in numbers", file=path)
    parse = arrow.csv.ParseOptions(newlines_in_values=True)
    try:
        with arrow.csv.open_csv(arrow.BufferReader(content), parse_options=parse) as head:
            names = head.schema.names
        parse.ignore_empty_lines = len(names) > 1  # a single column's empty cell
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
        text = f"{path}: not a UTF-8 CSV with equal numbers of cells per line: {one_line(error)}"
        raise SourceError(f"{text}; write it again", file=path) from error
    counted = [str(number) for number in range(len(names))]
    if names != counted and all(map(_NUMBER.fullmatch, names)):
        text = f"{path}: its first line has no column names: {abbreviate(names)}"
        raise SourceError(f"{text}; add a line of names before it", file=path)
    return table


def _names(value: _Columns) -> list[str]:
    return [value] if isinstance(value, str) else value


def _type_of(table: Any, value: _Columns) -> Any:
    """Returns the Arrow type that all cells of the columns share, or the reason why none exists."""
    arrow, names = pyarrow(), _names(value)
    if "" in names:
        return "without a name, such as an index of pandas"
    if any(len(table.schema.get_all_field_indices(name)) > 1 for name in names):
        return SEVERAL
    columns = [table.column(name).drop_null() for name in names]
    kind = arrow.null()
    if any(map(len, columns)):
        kinds = (arrow.int64(), arrow.float64(), arrow.bool_())
        fitting = (kind for kind in kinds if all(_has_type(column, kind) for column in columns))
        kind = next(fitting, arrow.string())
    return kind if isinstance(value, str) else arrow.list_(kind, len(names))


def _has_type(texts: Any, kind: Any) -> bool:
    """Returns whether texts are values of an Arrow type. Integers have no leading zeros, so a code
    such as 007 is not one."""
    arrow = pyarrow()
    try:
        values = texts.cast(kind)
    except arrow.ArrowInvalid:
        return False
    if kind == arrow.float64():
        others = arrow.compute.match_substring_regex(texts, _TEXT)
        infinite = arrow.compute.is_inf(values)
        return not arrow.compute.any(arrow.compute.or_(others, infinite)).as_py()
    return kind != arrow.int64() or bool(values.cast(arrow.string()).equals(texts))


def _refuse_losses(path: str, table: Any, value: _Columns, kind: Any) -> None:
    """Raises `SourceError` for cells whose value would change in the columns' type: large integers
    among fractions, and numbers among truth values."""
    arrow = pyarrow()
    cell = kind if isinstance(value, str) else getattr(kind, "value_type", None)
    for name in _names(value) if cell in (arrow.float64(), arrow.bool_()) else ():
        texts = table.column(name)
        if cell == arrow.bool_():
            found = arrow.compute.is_in(texts, arrow.array(["0", "1"]))
            problem = "is a number among truth values; write 0 and 1, or false and true"
        else:
            size = arrow.compute.abs(texts.cast(cell))
            found = arrow.compute.greater_equal(size, 2.0**53)  # float64 is exact below
            problem = "would lose digits among fractions; omit it, or write it as text: id-7"
        for text in texts.filter(found).to_pylist():
            if cell == arrow.bool_() or _loses_digits(text):
                raise SourceError(f"{path}: column {name!r}: {text} {problem}", file=path)


def _loses_digits(text: str) -> bool:
    """Returns whether a text is an integer that a float64 would change."""
    number = Decimal(text)
    places = len(number.as_tuple().digits) - 1
    served = Decimal(f"{float(text):.{places}e}")
    return number == number.to_integral_value() and number != served


def _array(table: Any, value: _Columns, kind: Any) -> Any:
    """Returns the cells of columns as an Arrow array."""
    arrow, names = pyarrow(), _names(value)
    cell = kind if isinstance(value, str) else kind.value_type
    columns = [table.column(name).cast(cell).combine_chunks() for name in names]
    if isinstance(value, str):
        return columns[0]
    by_row = np.arange(len(names) * table.num_rows).reshape(len(names), -1).T.ravel()
    cells = arrow.concat_arrays(columns).take(arrow.array(by_row))
    return arrow.FixedSizeListArray.from_arrays(cells, len(names))
