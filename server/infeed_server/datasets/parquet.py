"""Rows of Parquet files, by index. Needs PyArrow.

from infeed_server.datasets.parquet import ParquetRows

def train():
    return ParquetRows("data/train-*.parquet", columns=["image", "label"])

# source: {python: my_module:train, processes: 4}
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import MissingExtraError, SourceError

try:
    import pyarrow
    import pyarrow.parquet
    from pyarrow import types
except ImportError:
    raise MissingExtraError("Parquet files need PyArrow: pip install pyarrow") from None


class ParquetRows:
    """A data set of all rows, in the order of the files. A row costs the reading of its row group,
    unless that is one of those kept. So read small files in any order, and large ones with
    `shuffle: {mode: window}`, in blocks of a row group. Nested columns have names such as
    `image.bytes`. A null is no value of a field: its row is a bad sample. The fingerprint covers
    the footers: the schema, and the size, place and statistics of each column in each row group."""

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        cache_bytes: int = 256 << 20,
    ) -> None:
        """Opens files or globs, in the order of their names; reads all columns by default. Each
        process keeps `cache_bytes` of row groups, decompressed. Raises `SourceError`."""
        paths = _paths(files)
        stamps = [(path, _stamp(path)) for path in paths]
        self._files = [_open(path) for path in paths]
        for path, file in zip(paths, self._files, strict=True):
            if not file.schema_arrow.equals(self._files[0].schema_arrow):
                raise SourceError(
                    f"{path} has other columns or types than {paths[0]}; serve them as two data "
                    "sets",
                    file=path,
                )
        self._columns = None if columns is None else list(columns)
        self._limit = cache_bytes
        self._kept: dict[int, Any] = {}
        self._groups = [
            (file, group, stamp)
            for file, stamp in zip(self._files, stamps, strict=True)
            for group in range(file.num_row_groups)
        ]
        self._ends = np.cumsum(self.group_rows, dtype=np.int64)
        digest = hashlib.sha256(repr(self._columns).encode())
        for path in paths:
            digest.update(_footer(path))
        self.fingerprint = f"parquet-{digest.hexdigest()}"

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Mapping[str, Any]]:
        wanted = np.asarray(indices, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"rows are from 0 to {len(self) - 1}")
        numbers = np.searchsorted(self._ends, wanted, side="right")
        rows: list[Mapping[str, Any]] = [{}] * len(wanted)
        for number in np.unique(numbers):
            (places,) = np.nonzero(numbers == number)
            table = self._group(int(number))
            first = self._ends[number] - table.num_rows
            columns = _values(table.take(wanted[places] - first))
            for row, place in enumerate(places):
                rows[place] = {name: values[row] for name, values in columns.items()}
        return rows

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        return [file.metadata.row_group(group).num_rows for file, group, _ in self._groups]

    @property
    def total_bytes(self) -> int:
        """Decompressed bytes of all columns."""
        groups = (file.metadata.row_group(group) for file, group, _ in self._groups)
        return sum(group.total_byte_size for group in groups)

    def schema(self) -> Mapping[str, Any]:
        """Returns the types of the columns, of PyArrow, by name."""
        table = _flat(self._files[0].schema_arrow.empty_table())
        return {column.name: column.type for column in table.schema}

    def _group(self, number: int) -> Any:
        table = self._kept.pop(number, None)
        if table is None:
            file, group, (path, stamp) = self._groups[number]
            try:
                table = _flat(file.read_row_group(group, columns=self._columns, use_threads=False))
            finally:
                now = _stamp(path)
                if now != stamp and now[:1] == stamp[:1]:  # it was written over, not replaced
                    problem = f"{path} changed since it was opened; restart the server"
                    raise SourceError(problem, file=path, fault="changed")
        self._kept[number] = table  # the last used is the last
        while len(self._kept) > 1 and sum(t.nbytes for t in self._kept.values()) > self._limit:
            del self._kept[next(iter(self._kept))]
        return table


def _open(path: Path) -> Any:
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise SourceError(f"cannot read {str(path)!r}: {error}", file=path) from error


def _stamp(path: Path) -> tuple[int, ...]:
    """Returns which file has the path, and its version; of none, nothing."""
    with contextlib.suppress(OSError):
        stat = path.stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
    return ()


def _paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    paths: list[Path] = []
    names = [files] if isinstance(files, str | os.PathLike) else files
    for pattern in [os.fspath(name) for name in names]:
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207
        if not found:
            raise SourceError(f"no file matches {pattern!r}", file=pattern)
        paths += map(Path, found)
    return paths


def _footer(path: Path) -> bytes:
    with path.open("rb") as file:
        # A file ends with its footer, four bytes of the footer's length, and `PAR1`.
        file.seek(-8, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        file.seek(-8 - size, os.SEEK_END)
        return file.read(size)


def _flat(table: Any) -> Any:
    """Returns a table whose columns are the parts of nested ones."""
    while any(types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def _values(table: Any) -> dict[str, Sequence[Any]]:
    """Returns the values of each column: NumPy's, of the column's type, or text and bytes."""
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        is_list = types.is_list(array.type) or types.is_fixed_size_list(array.type)
        item = array.type.value_type if is_list or types.is_large_list(array.type) else array.type
        has_type = types.is_integer(item) or types.is_floating(item) or types.is_boolean(item)
        # NumPy has no null: one would make floats of the integers beside it.
        if has_type and not array.null_count:
            columns[name] = array.to_numpy(zero_copy_only=False)
        else:
            columns[name] = array.to_pylist()
    return columns
