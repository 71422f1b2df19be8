"""The `huggingface` source: folders written by `save_to_disk`, without `datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ByteSize, Field

from infeed.shared.errors import SourceError
from infeed_server.config.model import Finding
from infeed_server.sources.arrays.npy_files import MappedFile
from infeed_server.sources.arrow import fields
from infeed_server.sources.arrow.messages import Message, read_streams
from infeed_server.sources.arrow.part_cache import PartCache
from infeed_server.sources.arrow.saved_dataset import read_saved, require_saved
from infeed_server.sources.arrow.tables import (
    ColumnNames,
    Part,
    Shapes,
    TableReader,
    advice_of_parts,
    part_of_table,
)
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, find_missing
from infeed_server.storage.files import (
    PathString,
    absolute_path,
    is_remote,
    list_files,
    reading,
)
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile


class HuggingFaceSource(IndexedDefinition):
    """A data set of Hugging Face that `save_to_disk` wrote, or a split of one."""

    kind: ClassVar[str] = "huggingface"

    huggingface: PathString
    """Folder with `state.json`. On a local disk it is memory-mapped; from an object store, a row
    costs its record batch, of 1,000 rows by default, and 100 with images."""
    columns: ColumnNames | None = None
    """Columns to serve, each a field: `image` for the bytes of an image, `box.left` for a part of
    a nested one; by default all that can be served."""
    shapes: Shapes | None = None
    """Shape of the lists of a column, where all rows have one: `{box: [4]}`; without it, their size
    varies."""

    cache: Annotated[ByteSize, Field(ge=1 << 20)] = ByteSize(256 << 20)
    """Bytes of record batches from an object store that each process keeps in memory."""

    def check(self) -> Iterator[Finding]:
        if not is_remote(self.huggingface):
            yield from find_missing(("huggingface",), lambda: require_saved(self.huggingface))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> SavedRows:  # noqa: ARG002
        """Maps the files, or finds the record batches of objects. Raises `SourceError` and
        `MissingExtraError`."""
        fields.pyarrow()
        folder, chosen = absolute_path(self.huggingface), (self.columns, self.shapes or {})
        if is_remote(folder):
            return StoredBatches(folder.rstrip("/"), *chosen, self.cache)
        return MappedBatches(folder, *chosen)


class SavedRows(TableReader):
    """Rows of a saved data set; a part is a record batch."""

    def _begin(self, folder: str, columns: Sequence[str] | None, shapes: Shapes) -> Sequence[str]:
        """Reads the descriptions, and returns the files."""
        self._folder, self._saved = folder, read_saved(folder)
        self._asked = columns, {**self._saved.shapes, **shapes}
        self.classes = self._saved.classes
        self._types: dict[str, str] = {}
        return self._saved.files

    def _choose(self, path: str, schema: Any) -> dict[str, str]:
        """Returns the column of each field in the flattened table of a file. Raises `SourceError`
        if its types are not the first file's."""
        sources = self._sources(path, schema)
        kinds = {name: sources[name][1] for name in sources}
        if not self._types:
            self.set_types(kinds, *self._asked, path)
            self._types = {field.name: str(kinds[field.name]) for field in self.fields}
        elif {name: str(kinds.get(name)) for name in self._types} != self._types:
            first = self._saved.files[0]
            raise SourceError(
                f"{path} has other columns or types than {first}; save them again", file=path
            )
        return {field.name: sources[field.name][0] for field in self.fields}

    def _end(self, parts: Sequence[StoredFile], rows: Sequence[int], sizes: Sequence[int]) -> None:
        """Takes the file and the rows of each record batch, and the sizes of the files."""
        self.set_parts(parts, rows, self._folder)
        listed = [f"{field.name}: {field}" for field in self.fields]
        described = f"huggingface {self._saved.fingerprint} {[*sizes]} {listed}"
        self.identity = hashlib.sha256(described.encode()).hexdigest()

    def remedy(self, column: str) -> str:
        if column not in self._saved.encoded:
            return ""
        return (
            "; the row may have the path of a file alone: load the data set where its files are, "
            "and write it again with ds.save_to_disk(FOLDER), which writes their bytes"
        )

    def _sources(self, path: str, schema: Any) -> Mapping[str, tuple[str, Any]]:
        """Returns the column and the type of each field in a flattened table."""
        with fields.decoding(path, "its schema"):
            kinds = fields.column_types(schema)
        names = {f"{name}.bytes": name for name in self._saved.encoded}
        hidden = [f"{name}.path" for name in self._saved.encoded]
        return {
            names.get(column, column): (column, kind)
            for column, kind in kinds.items()
            if column not in hidden
        }


class MappedBatches(SavedRows):
    """Record batches of mapped files, of which only the rows that are read are in memory."""

    def __init__(self, folder: str, columns: Sequence[str] | None, shapes: Shapes) -> None:
        self._parts: list[Part] = []
        self._mapped: list[MappedFile] = []
        """The file of each part."""
        self._checked: set[int] = set()
        sizes: list[int] = []
        for path in self._begin(folder, columns, shapes):
            mapped, table = _map(path)
            chosen = self._choose(path, table.schema)
            for batch in table.to_batches():
                whole = fields.pyarrow().Table.from_batches([batch])
                self._parts.append(part_of_table(whole, chosen))
                self._mapped.append(mapped)
            sizes.append(mapped.stamp.size)
        parts = [StoredFile(mapped.path, mapped.stamp) for mapped in self._mapped]
        self._end(parts, [len(next(iter(part.values()))) for part in self._parts], sizes)
        self.load = self._load

    def _load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        for number in parts:
            mapped = self._mapped[number]
            mapped.check()  # a mapping of a file that became shorter must not be read
            if number not in self._checked:
                self._check(number)
            yield number, self._parts[number]
            mapped.check()

    def _check(self, number: int) -> None:
        """Raises `SourceError` for offsets that point out of a batch: PyArrow would follow them."""
        path = self._mapped[number].path
        for name, column in self._parts[number].items():
            with fields.decoding(path, f"the column {name!r}"):
                column.validate(full=True)
        self._checked.add(number)


class StoredBatches(SavedRows):
    """Record batches of objects, which are read as a whole; the last ones are kept."""

    def __init__(
        self, folder: str, columns: Sequence[str] | None, shapes: Shapes, cache_bytes: int
    ) -> None:
        """Reads the metadata of each record batch, and nothing else. Raises `SourceError`."""
        paths = self._begin(folder, columns, shapes)
        by_path = {file.path: file for file in list_files(paths)}
        files = [by_path[path] for path in paths]
        self._ranges = RangeReader(files, "it was opened")
        self._heads: list[bytes] = []
        self._chosen: list[dict[str, str]] = []
        self._batches: list[Message] = []
        for file, (head, batches) in zip(files, read_streams(self._ranges), strict=True):
            with fields.decoding(file.path, "its schema"):
                schema = fields.pyarrow().ipc.open_stream(head).schema
            self._chosen.append(self._choose(file.path, schema))
            self._heads.append(head)
            self._batches += batches
        rows = [batch.rows for batch in self._batches]
        sizes = [batch.size for batch in self._batches]
        self._end(
            [files[batch.file] for batch in self._batches],
            rows,
            [file.stamp.size for file in files],
        )
        self._cache = PartCache(cache_bytes, sizes, self._read)
        self.load = self._cache.get
        self.advice = advice_of_parts("record batch", rows, sizes, cache_bytes)

    @property
    def total_bytes(self) -> int:
        return sum(batch.size for batch in self._batches)

    def close(self) -> None:
        self._ranges.close()

    def _read(self, parts: Sequence[int]) -> list[Part]:
        batches = [self._batches[part] for part in parts]
        places = np.array([batch[:3] for batch in batches], np.int64).T
        contents = self._ranges.read(*places).tolist()
        return [*map(self._decode, batches, contents)]

    def _decode(self, batch: Message, content: bytes) -> Part:
        path = self._ranges.files[batch.file].path
        with fields.decoding(path, f"the record batch at byte {batch.begin}"):
            table = fields.pyarrow().ipc.open_stream(self._heads[batch.file] + content).read_all()
            if table.num_rows != batch.rows:
                raise ValueError(f"it has {table.num_rows} rows instead of {batch.rows}")
            table.validate(full=True)
            part = part_of_table(table, self._chosen[batch.file])
            rows = fields.pyarrow().array(range(batch.rows))
            # Copies: a column in the batch would keep all of the batch's bytes.
            return {name: column.take(rows) for name, column in part.items()}


def _map(path: str) -> tuple[MappedFile, Any]:
    arrow = fields.pyarrow()
    with fields.decoding(path, "it"):
        with reading(path, "open"):
            mapped = MappedFile(path)
        table = arrow.ipc.open_stream(arrow.memory_map(path)).read_all()
        table.validate()  # before its structs become columns
        mapped.check()
    return mapped, table
