"""Tables with samples as rows: parts of files, and the reading of rows from parts."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, NonNegativeInt

from infeed.shared.errors import SourceError
from infeed_formats.arrow.fields import (
    RowError,
    field_of,
    flatten,
    plain_type,
    pyarrow,
    to_rows,
)
from infeed_formats.columns import ColumnSource
from infeed_formats.values import Field as FieldType
from infeed_server.config.model import as_tuple
from infeed_server.sources.base import Columns, require_names
from infeed_server.sources.places import Indices, InFiles
from infeed_server.storage.files import abbreviate
from infeed_server.storage.stamp import StoredFile

log = logging.getLogger(__name__)

_MAX_SEARCHED_BYTES = 1 << 30
"""Maximum bytes of a table whose column is searched, since its other columns are read too."""

ColumnNames = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)]

Shapes = dict[str, Annotated[tuple[NonNegativeInt | None, ...], BeforeValidator(as_tuple)]]
"""Column → shape of its lists, if they share one."""

Part = Mapping[str, Any]
"""Arrow arrays of consecutive rows, by field name."""


class ChosenColumns(NamedTuple):
    """The fields of a table and the types of its other columns."""

    fields: tuple[FieldType, ...]
    left_out: Mapping[str, str]


class TableReader(ColumnSource):
    """Reads rows of files by index, in parts such as row groups, each read whole. Thread-safe."""

    def __init__(
        self,
        parts: InFiles,
        chosen: ChosenColumns,
        identity: str,
        *,
        classes: Mapping[str, Sequence[str]] = {},
        advice: str = "",
    ) -> None:
        """`parts` has the file and the number of rows of each part."""
        super().__init__(parts, chosen.fields, identity, classes=classes, advice=advice)
        self.parts, self.left_out = parts, chosen.left_out

    @abstractmethod
    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        """Yields parts with their numbers, sorted by number. Raises `SourceError`."""

    def remedy(self, column: str) -> str:  # noqa: ARG002 - of some columns
        """Returns the remedy for a null, as the end of a message."""
        return ""

    @property
    def total_bytes(self) -> int:
        """Bytes read to get all rows; 0 if files are mapped."""
        return 0

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        """Reads a column if all columns together are small."""
        field = next((one for one in self.fields if one.name == name), None)
        if field is None or field.shape or self.total_bytes > _MAX_SEARCHED_BYTES:
            return None
        values = field.empty(len(self))
        for number in range(len(self.parts.files)):
            for _, part in self.load([number]):
                rows = slice(*self.parts.first[number : number + 2].tolist())
                try:
                    values[rows] = to_rows(part[name], field)
                except RowError as error:
                    problem = f"its column {name!r} {error}"
                    raise self.sample_error(rows.start + error.row, problem) from error
        return values

    def count_nulls(self) -> Mapping[str, int]:
        """Returns the known number of nulls in each field, in rows or in lists."""
        parts = [part for _, part in self.load(range(len(self.parts.files)))]
        names = [field.name for field in self.fields]
        return {name: sum(part[name].null_count for part in parts) for name in names}

    def read(self, indices: Indices) -> Columns:
        """Reads rows, each part once. Raises `SampleError` for the first row with a null."""
        parts = self.parts.files_of(indices)
        columns = {field.name: field.empty(len(indices)) for field in self.fields}
        bad: dict[int, tuple[str, RowError]] = {}
        for number, part in self.load(np.unique(parts).tolist()):
            slots = np.flatnonzero(parts == number)
            rows = pyarrow().array(indices[slots] - self.parts.first[number])
            for field in self.fields:
                try:
                    values = to_rows(part[field.name].take(rows), field)
                    columns[field.name][slots] = values
                except RowError as error:
                    bad.setdefault(int(slots[error.row]), (field.name, error))
        if bad:
            slot = min(bad)
            index, (column, reason) = int(indices[slot]), bad[slot]
            path = self.provenance(index).file
            first = next(n for n, file in enumerate(self.parts.files) if file.path == path)
            problem = f"its column {column!r} {reason}{self.remedy(column)}"
            row = index - self.parts.first[first]
            raise self.sample_error(index, problem, f"{path}, row {row}")
        return self.to_columns(columns)


def rows_of(files: Sequence[StoredFile], rows: Sequence[int], first: str) -> InFiles:
    """Returns the rows of parts, each in a file. Raises `SourceError` if there are no rows."""
    if not sum(rows):
        raise SourceError(f"{first}: the files have no rows; leave them out", file=first)
    return InFiles(files, rows)


def part_of_table(table: Any, sources: Mapping[str, str]) -> Part:
    """Returns the arrays of fields; `sources` names their columns in the flattened table."""
    table = flatten(table)
    columns = {name: table.column(source) for name, source in sources.items()}
    for name, column in columns.items():
        if "_view" in str(column.type):  # PyArrow cannot take rows from views
            columns[name] = column.cast(plain_type(column.type))
    return {
        # Combining a single chunk would copy it.
        name: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for name, column in columns.items()
    }


def choose_columns(
    kinds: Mapping[str, Any], columns: Sequence[str] | None, shapes: Shapes, file: str
) -> ChosenColumns:
    """Chooses the named columns, or all that can be served, with a warning about the others.
    Raises `SourceError`."""
    found = {name: field_of(name, kind) for name, kind in kinds.items()}
    served = {name: field for name, field in found.items() if field is not None}
    names = [*(columns or ()), *shapes]
    require_names((name for name in names if name not in kinds), [*served], file)
    for name in names:
        if name not in served:
            raise SourceError(
                f"{file}: the column {name!r} is {kinds[name]}, which cannot be served; convert "
                f"or rename it, or choose from: {abbreviate([*served], 12) or 'none'}",
                file=file,
            )
    if not served:
        raise SourceError(
            f"{file} has no column that can be served; it has: "
            + (abbreviate([f"{name} ({kind})" for name, kind in kinds.items()]) or "none"),
            file=file,
        )
    chosen = dict.fromkeys(columns or served)
    left_out = {name: str(kind) for name, kind in kinds.items() if name not in chosen}
    if columns is None and left_out:
        texts = [f"{name} ({kind})" for name, kind in left_out.items()]
        log.warning("%s: skipped columns that cannot be served: %s", file, abbreviate(texts))
    fields = (_shaped(served[name], shapes.get(name), file) for name in chosen)
    return ChosenColumns(tuple(fields), left_out)


def _shaped(field: FieldType, shape: tuple[int | None, ...] | None, file: str) -> FieldType:
    if shape is None:
        return field
    sizes = zip(field.shape, shape, strict=False)
    if len(shape) != len(field.shape) or any(own not in (None, size) for own, size in sizes):
        raise SourceError(
            f"{file}: the column {field.name!r} is {field}, which does not fit {list(shape)}; give "
            f"{len(field.shape)} sizes in shapes",
            file=file,
        )
    return FieldType(field.name, field.data_type, shape)
