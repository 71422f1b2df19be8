"""Tables whose rows are samples: parts of files, and the reading of rows from parts."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, NonNegativeInt

from infeed.shared.errors import SampleError, SourceError
from infeed_server.config.model import as_tuple
from infeed_server.sources.arrow.fields import RowError, empty, field_of, flatten, pyarrow, to_rows
from infeed_server.sources.base import Columns, Indices, Provenance
from infeed_server.sources.columns import ColumnSource
from infeed_server.sources.python.values import Field as FieldType
from infeed_server.storage.files import abbreviate

log = logging.getLogger(__name__)

ColumnNames = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)]

Shapes = dict[str, Annotated[tuple[NonNegativeInt | None, ...], BeforeValidator(as_tuple)]]
"""Column → shape of its lists, where they have one."""

Part = Mapping[str, Any]
"""Arrays of Arrow of consecutive rows, by the name of their field."""


class Tables(ABC):
    """Rows of files in parts, such as row groups, that are read as a whole. Thread-safe."""

    fields: tuple[FieldType, ...]
    left_out: Mapping[str, str]
    """Columns that cannot be served, and their types, unless columns are named."""
    ends: npt.NDArray[np.int64]
    """The number of rows up to the end of each part."""
    identity: str
    stamp: str
    advice: str = ""
    class_names: tuple[str, ...] = ()

    def set_types(
        self,
        kinds: Mapping[str, Any],
        columns: Sequence[str] | None,
        shapes: Shapes,
        file: str,
    ) -> None:
        """Chooses the fields from the types of the columns; warns of those that are left out."""
        self.fields = choose_fields(kinds, columns, shapes, file)
        names = {field.name for field in self.fields}
        self.left_out = {n: str(kind) for n, kind in kinds.items() if n not in names}
        if columns is None and self.left_out:
            texts = [f"{name} ({kind})" for name, kind in self.left_out.items()]
            log.warning("%s: left out, as it cannot be served: %s", file, abbreviate(texts))

    def set_ends(self, rows: Sequence[int], file: str) -> None:
        """Takes the rows of each part. Raises `SourceError` if there is none."""
        self.ends = np.cumsum(rows, dtype=np.int64)
        if not len(self):
            raise SourceError(f"{file}: no row in the files; write them again", file=file)

    @abstractmethod
    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        """Yields these parts with their numbers. Raises `SourceError`."""

    @abstractmethod
    def place(self, part: int) -> Provenance:
        """Returns the location of a part."""

    @abstractmethod
    def first_part(self, part: int) -> int:
        """Returns the first part of the file that has a part."""

    def remedy(self, column: str) -> str:  # noqa: ARG002 - of some columns
        """Returns what to do about a null, for the end of a message."""
        return ""

    def close(self) -> None:  # noqa: B027 - some have nothing to end
        """Ends what reads for the tables."""

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def part_of(self, index: int) -> int:
        return int(np.searchsorted(self.ends, index, side="right"))

    def read(self, indices: Indices) -> Columns:
        """Reads rows, each part once. Raises `SampleError` for the first row with a null."""
        parts = np.searchsorted(self.ends, indices, side="right")
        columns = {field.name: empty(field, len(indices)) for field in self.fields}
        bad: dict[int, tuple[str, RowError]] = {}
        for number, part in self.load(np.unique(parts).tolist()):
            slots = np.flatnonzero(parts == number)
            first = self.ends[number - 1] if number else 0
            rows = pyarrow().array(indices[slots] - first)
            for field in self.fields:
                try:
                    values = to_rows(part[field.name].take(rows), field)
                    columns[field.name][slots] = values
                except RowError as error:
                    bad.setdefault(int(slots[error.row]), (field.name, error))
        if bad:
            slot = min(bad)
            raise self._sample_error(int(indices[slot]), *bad[slot])
        return columns

    def _sample_error(self, index: int, column: str, error: RowError) -> SampleError:
        part = self.part_of(index)
        place, first = self.place(part), self.first_part(part)
        row = index - int(self.ends[first - 1] if first else 0)
        return SampleError(
            f"sample {index} cannot be read: {place.file}, row {row}: its column {column!r} "
            f"{error}{self.remedy(column)}",
            sample_id=index,
            file=place.file,
            offset=place.offset,
        )


class TableReader(ColumnSource):
    """Reads rows of tables by index. Thread-safe."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.set_fields(tables.fields)
        self.identity, self.stamp, self.advice = tables.identity, tables.stamp, tables.advice
        self.class_names = tables.class_names

    def __len__(self) -> int:
        return len(self.tables)

    def provenance(self, index: int) -> Provenance:
        return self.tables.place(self.tables.part_of(index))

    def read(self, indices: Indices) -> Columns:
        return self.to_columns(self.tables.read(indices))

    def close(self) -> None:
        self.tables.close()


def part_of_table(table: Any, sources: Mapping[str, str]) -> Part:
    """Returns the arrays of fields; `sources` are their columns in the flattened table."""
    table = flatten(table)
    columns = {name: table.column(source) for name, source in sources.items()}
    return {
        # Of one chunk, to combine it would be a copy.
        name: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for name, column in columns.items()
    }


def choose_fields(
    kinds: Mapping[str, Any], columns: Sequence[str] | None, shapes: Shapes, file: str
) -> tuple[FieldType, ...]:
    """Returns the fields of the named columns, or of all that can be served. Raises
    `SourceError`."""
    served = {}
    for name, kind in kinds.items():
        if (field := field_of(name, kind)) is not None:
            served[name] = field
    available = abbreviate([*served], 12) or "none"
    for name in (*(columns or ()), *shapes):
        if name not in kinds:
            raise SourceError(f"{file} has no column {name!r}; available: {available}", file=file)
        if name not in served:
            raise SourceError(
                f"{file}: the column {name!r} is {kinds[name]}, which cannot be served; convert "
                f"it, or choose from: {available}",
                file=file,
            )
    if not served:
        raise SourceError(
            f"{file} has no column that can be served; it has: "
            + (abbreviate([f"{name} ({kind})" for name, kind in kinds.items()]) or "none"),
            file=file,
        )
    return tuple(
        _shaped(served[name], shapes.get(name), file) for name in dict.fromkeys(columns or served)
    )


def _shaped(field: FieldType, shape: tuple[int | None, ...] | None, file: str) -> FieldType:
    if shape is None:
        return field
    sizes = zip(field.shape, shape, strict=False)
    if len(shape) != len(field.shape) or any(own not in (None, size) for own, size in sizes):
        raise SourceError(
            f"{file}: the column {field.name!r} is {field}, which is no {list(shape)}; change "
            f"shapes: give {len(field.shape)} sizes",
            file=file,
        )
    return FieldType(field.name, field.data_type, shape)
