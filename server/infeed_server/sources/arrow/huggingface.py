"""The `huggingface` source: folders written by `save_to_disk`, mapped, without `datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import field_validator

from infeed.shared.errors import SourceError
from infeed_server.config.model import Finding
from infeed_server.sources.arrays.npy_files import MappedFile
from infeed_server.sources.arrow import fields
from infeed_server.sources.arrow.saved_dataset import read_saved, require_saved
from infeed_server.sources.arrow.tables import ColumnNames, Part, Shapes, TableReader, part_of_table
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, find_missing
from infeed_server.storage.files import PathString, absolute_path, is_remote, reading
from infeed_server.storage.stamp import StoredFile


class HuggingFaceSource(IndexedDefinition):
    """A data set of Hugging Face that `save_to_disk` wrote, or a split of one."""

    kind: ClassVar[str] = "huggingface"

    huggingface: PathString
    """Folder with `state.json`, on a local disk: it is memory-mapped."""
    columns: ColumnNames | None = None
    """Columns to serve, each a field: `image` for the bytes of an image, `box.left` for a part of
    a nested one; by default all that can be served."""
    shapes: Shapes | None = None
    """Shape of the lists of a column, where all rows have one: `{box: [4]}`; without it, their size
    varies."""

    @field_validator("huggingface")
    @classmethod
    def _check_local(cls, value: str) -> str:
        if is_remote(value):
            raise ValueError(
                "it is memory-mapped, which an object store cannot be; copy it to a local disk, or "
                "write Parquet, which the source parquet reads from stores: ds.to_parquet(FILE)"
            )
        return value

    def check(self) -> Iterator[Finding]:
        yield from find_missing(("huggingface",), lambda: require_saved(self.huggingface))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> RecordBatches:  # noqa: ARG002
        """Maps the files. Raises `SourceError` and `MissingExtraError`."""
        fields.pyarrow()
        return RecordBatches(absolute_path(self.huggingface), self.columns, self.shapes or {})


class RecordBatches(TableReader):
    """Rows of a saved data set; a part is a record batch of a mapped file."""

    def __init__(self, folder: str, columns: Sequence[str] | None, shapes: Shapes) -> None:
        saved = read_saved(folder)
        self._encoded = saved.encoded
        self.class_names = saved.class_names
        self._parts: list[Part] = []
        self._mapped: list[MappedFile] = []
        """The file of each part."""
        self._checked: set[int] = set()
        types: dict[str, str] = {}
        sizes: list[int] = []
        for number, path in enumerate(saved.files):
            mapped, table = _map(path)
            sources = self._sources(path, table)
            kinds = {name: sources[name][1] for name in sources}
            if not number:
                self.set_types(kinds, columns, {**saved.shapes, **shapes}, path)
                types = {field.name: str(kinds[field.name]) for field in self.fields}
            elif {name: str(kinds.get(name)) for name in types} != types:
                raise SourceError(
                    f"{path} has other columns or types than {saved.files[0]}; save them again",
                    file=path,
                )
            chosen = {field.name: sources[field.name][0] for field in self.fields}
            for batch in table.to_batches():
                whole = fields.pyarrow().Table.from_batches([batch])
                self._parts.append(part_of_table(whole, chosen))
                self._mapped.append(mapped)
            sizes.append(mapped.stamp.size)
        parts = [StoredFile(mapped.path, mapped.stamp) for mapped in self._mapped]
        self.set_parts(parts, [len(next(iter(part.values()))) for part in self._parts], folder)
        listed = [f"{field.name}: {field}" for field in self.fields]
        described = f"huggingface {saved.fingerprint} {sizes} {listed}"
        self.identity = hashlib.sha256(described.encode()).hexdigest()

    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        for number in parts:
            mapped = self._mapped[number]
            mapped.check()  # a mapping of a file that became shorter must not be read
            if number not in self._checked:
                self._check(number)
            yield number, self._parts[number]
            mapped.check()

    def remedy(self, column: str) -> str:
        if column not in self._encoded:
            return ""
        return (
            "; the row may have the path of a file alone: load the data set where its files are, "
            "and write it again with ds.save_to_disk(FOLDER), which writes their bytes"
        )

    def _sources(self, path: str, table: Any) -> Mapping[str, tuple[str, Any]]:
        """Returns the column and the type of each field in a flattened table."""
        with fields.decoding(path, "its schema"):
            kinds = fields.column_types(table.schema)
        names = {f"{name}.bytes": name for name in self._encoded}
        hidden = [f"{name}.path" for name in self._encoded]
        return {
            names.get(column, column): (column, kind)
            for column, kind in kinds.items()
            if column not in hidden
        }

    def _check(self, number: int) -> None:
        """Raises `SourceError` for offsets that point out of a batch: PyArrow would follow them."""
        path = self._mapped[number].path
        for name, column in self._parts[number].items():
            with fields.decoding(path, f"the column {name!r}"):
                column.validate(full=True)
        self._checked.add(number)


def _map(path: str) -> tuple[MappedFile, Any]:
    arrow = fields.pyarrow()
    with fields.decoding(path, "it"):
        with reading(path, "open"):
            mapped = MappedFile(path)
        table = arrow.ipc.open_stream(arrow.memory_map(path)).read_all()
        table.validate()  # before its structs become columns
        mapped.check()
    return mapped, table
