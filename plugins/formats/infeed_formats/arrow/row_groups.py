"""Row groups of Parquet files: their index and reader."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infeed.shared.errors import SourceError
from infeed_formats.arrow import fields
from infeed_formats.arrow.footers import read_footers
from infeed_formats.arrow.open_group import OpenGroup
from infeed_formats.arrow.part_cache import PartCache
from infeed_formats.arrow.partitions import read_partitions
from infeed_formats.arrow.saved_dataset import stored_classes
from infeed_formats.arrow.tables import (
    Part,
    Shapes,
    TableReader,
    choose_columns,
    part_of_table,
    rows_of,
)
from infeed_server.sources.class_names import class_conflict
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile

_MANY_ROWS = 100
"""Rows of a row group; with more, reading one row in a global order costs too many others."""


class _Group(NamedTuple):
    """A row group: its file, its number there, its rows, and the decompressed bytes of all
    columns."""

    file: int
    number: int
    rows: int
    decompressed: int


def _describe(names: Sequence[str], kinds: Mapping[str, Any]) -> dict[str, str]:
    """Returns the properties of the columns that all files must share."""
    described = {}
    for name in names:
        field = fields.field_of(name, kinds[name]) if name in kinds else None
        described[name] = f"{field} {fields.time_unit(kinds[name])}".strip() if field else "no"
    return described


class RowGroups(TableReader):
    """Rows of Parquet files. A part is a row group; the last ones read stay in memory."""

    def __init__(
        self,
        files: Sequence[StoredFile],
        columns: Sequence[str] | None,
        shapes: Shapes,
        cache_bytes: int,
    ) -> None:
        """Reads only the footers. Raises `SourceError`."""
        self._ranges = RangeReader(files)
        self._metadata: list[Any] = []
        self._groups: list[_Group] = []
        self._leaves: list[list[str]] = []
        chosen, classes, described = None, dict[str, Sequence[str]](), dict[str, str]()
        digest = hashlib.sha256(b"parquet\n")
        self._partitions = read_partitions([file.path for file in files], columns or ())
        for number, (content, metadata) in enumerate(read_footers(self._ranges)):
            with fields.decoding(files[number].path, "its schema"):
                kinds = fields.column_types(metadata.schema.to_arrow_schema())
            # A column of the file takes precedence over a folder.
            folders = {n: v for n, v in self._partitions[number].items() if n not in kinds}
            kinds |= {name: value.type for name, value in folders.items()}
            stored = stored_classes(metadata.metadata)
            if chosen is None:
                chosen = choose_columns(kinds, columns, shapes, files[0].path)
                names = [field.name for field in chosen.fields]
                classes = {name: stored[name] for name in names if name in stored}
                described = _describe(names, kinds)
            elif (other := _describe(names, kinds)) != described:
                raise self._other_types(number, other, described)
            self._check_classes(number, stored, classes)
            self._add_groups(number, metadata, names)
            digest.update(content)
            folders = {name: folders[name] for name in names if name in folders}
            digest.update("".join(f"{name} {folders[name]!s}\n" for name in folders).encode())
            self._partitions[number] = folders
        assert chosen is not None  # there is a file
        digest.update(repr(described).encode())
        sizes = [group.decompressed for group in self._groups]
        self._cache = PartCache(cache_bytes, sizes, self._read)
        super().__init__(
            rows_of([files[g.file] for g in self._groups], self.group_rows, files[0].path),
            chosen,
            digest.hexdigest(),
            classes=classes,
            advice=self._advise(cache_bytes),
        )

    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        return self._cache.get(parts)

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        return [group.rows for group in self._groups]

    @property
    def total_bytes(self) -> int:
        """Bytes of all columns, decompressed."""
        return sum(group.decompressed for group in self._groups)

    def count_nulls(self) -> Mapping[str, int]:
        """Returns the null counts in the footers that state them. Raises `SourceError`."""
        counts: Counter[str] = Counter()
        names = [field.name for field in self.fields]
        for group in self._groups:
            self._open(group).release()  # raises for a damaged chunk, unlike its description
            metadata = self._metadata[group.file]
            with fields.decoding(self._ranges.files[group.file].path, "its footer"):
                for number in range(len(metadata.schema)):
                    leaf = metadata.schema.column(number)
                    found = [name for name in names if f"{leaf.path}.".startswith(f"{name}.")]
                    chunk = metadata.row_group(group.number).column(number) if found else None
                    # PyArrow ends the process for statistics of another type.
                    if chunk and chunk.physical_type == leaf.physical_type and chunk.statistics:
                        counts[max(found, key=len)] += chunk.statistics.null_count or 0
        return counts

    def _advise(self, cache_bytes: int) -> str:
        most = max(self.group_rows, default=0)
        if most <= _MANY_ROWS or self.total_bytes <= cache_bytes:
            return ""
        largest = max(group.decompressed for group in self._groups)
        return (
            f"reading a row costs its row group, up to {most} rows and {largest >> 20} MiB, and a "
            f"global order hardly reuses them; set shuffle: {{mode: window, block: {most}, "
            f"window: {4 * most}}}, or write row groups of 16 to {_MANY_ROWS} rows"
        )

    def close(self) -> None:
        self._ranges.close()

    def _check_classes(
        self, file: int, classes: Mapping[str, Sequence[str]], expected: Mapping[str, Sequence[str]]
    ) -> None:
        """Raises `SourceError` if a number names another class than in the first file."""
        for name, names in expected.items():
            if problem := class_conflict(classes.get(name, ()), names):
                path, first = self._ranges.files[file].path, self._ranges.files[0].path
                raise SourceError(
                    f"{path} has a column {name!r} where {problem} in {first}; write both with one "
                    "list of classes: ds.cast_column(...) of datasets",
                    file=path,
                )

    def _other_types(
        self, file: int, other: Mapping[str, str], first: Mapping[str, str]
    ) -> SourceError:
        path, before = self._ranges.files[file].path, self._ranges.files[0].path
        name = next(name for name in first if first[name] != other[name])
        has = "no field" if other[name] == "no" else other[name]
        return SourceError(
            f"{path} has {has} for the column {name!r}, but {before} has {first[name]}; "
            "serve the files as two data sets, or choose the columns that agree: columns: ...",
            file=path,
        )

    def _add_groups(self, file: int, metadata: Any, names: Sequence[str]) -> None:
        with fields.decoding(self._ranges.files[file].path, "its footer"):
            schema = metadata.schema
            paths = [schema.column(number).path for number in range(len(schema))]
            served = tuple(f"{name}." for name in names)
            self._leaves.append([path for path in paths if f"{path}.".startswith(served)])
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                if group.num_rows < 0:
                    raise ValueError(f"row group {number} has {group.num_rows} rows")
                size = max(group.total_byte_size, 0)
                self._groups.append(_Group(file, number, group.num_rows, size))
        self._metadata.append(metadata)

    def _read(self, parts: Sequence[int]) -> list[Part]:
        groups = [self._groups[part] for part in parts]
        opened: list[OpenGroup] = []
        try:
            opened.extend(map(self._open, groups))
            chunks = [chunk for file in opened for chunk in file.chunks]
            contents = self._ranges.read(*np.array(chunks, np.int64).reshape(-1, 3).T)
            left = iter(contents.tolist())
            for file in opened:
                file.contents = {begin: next(left) for _, begin, _ in file.chunks}
            return [self._decode(group, file) for group, file in zip(groups, opened, strict=True)]
        finally:
            for file in opened:
                file.release()

    def _open(self, group: _Group) -> OpenGroup:
        file = group.file
        with fields.decoding(self._ranges.files[file].path, f"row group {group.number}"):
            metadata, leaves = self._metadata[file], self._leaves[file]
            return OpenGroup(self._ranges, file, group.number, metadata, leaves)

    def _decode(self, group: _Group, opened: OpenGroup) -> Part:
        names = [field.name for field in self.fields]
        folders = self._partitions[group.file]
        with fields.decoding(self._ranges.files[group.file].path, f"row group {group.number}"):
            table = opened.read_columns([name for name in names if name not in folders])
            if table.num_rows != group.rows:
                raise ValueError(f"it has {table.num_rows} rows, but {group.rows} in the footer")
            table.validate(full=True)
            for name, value in folders.items():
                values = fields.pyarrow().repeat(value, group.rows)
                table = table.append_column(name, values)
            return part_of_table(table, {name: name for name in names})
