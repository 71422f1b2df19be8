"""The `huggingface` source: folders written by `save_to_disk`, read without `datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import field_validator

from infeed.shared.errors import SourceError
from infeed_formats.arrays.npy_files import MappedFile
from infeed_formats.arrow import fields
from infeed_formats.arrow.saved_dataset import read_saved, require_saved
from infeed_formats.arrow.tables import (
    ColumnNames,
    Part,
    Shapes,
    TableReader,
    choose_columns,
    part_of_table,
    rows_of,
)
from infeed_server.config.model import Finding
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, find_missing
from infeed_server.storage.files import PathString, absolute_path, is_remote, reading
from infeed_server.storage.stamp import StoredFile


class HuggingFaceSource(IndexedDefinition):
    """A Hugging Face data set or split written by `save_to_disk`."""

    kind: ClassVar[str] = "huggingface"

    huggingface: PathString
    """Local folder with `state.json`; its data files are memory-mapped."""
    columns: ColumnNames | None = None
    """Columns to serve, each a field: `image` for the bytes of an image, `box.left` for a part of
    a nested column; by default all that can be served."""
    shapes: Shapes | None = None
    """Shape of a column's lists if it is the same in all rows, as in `{box: [4]}`; without it,
    their size varies."""

    @field_validator("huggingface")
    @classmethod
    def _check(cls, value: str) -> str:
        if is_remote(value):
            raise ValueError(
                f"{value!r} is in a store, but saved data sets can only be read from a local disk; "
                "copy the folder to this host, or store the rows as Parquet with "
                "ds.to_parquet(FILE) and use parquet"
            )
        return value

    def check(self) -> Iterator[Finding]:
        yield from find_missing(("huggingface",), lambda: require_saved(self.huggingface))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> SavedRows:  # noqa: ARG002
        """Maps the files. Raises `SourceError` and `MissingExtraError`."""
        fields.pyarrow()
        return SavedRows(absolute_path(self.huggingface), self.columns, self.shapes or {})


class SavedRows(TableReader):
    """Rows of a saved data set. A part is a record batch of a mapped file; only rows that are read
    take memory."""

    def __init__(self, folder: str, columns: Sequence[str] | None, shapes: Shapes) -> None:
        self._encoded = (saved := read_saved(folder)).encoded
        self._parts: list[Part] = []
        self._mapped: list[MappedFile] = []
        """The file of each part."""
        self._checked: set[int] = set()
        tables = [_map(path) for path in saved.files]
        sources = [self._sources(mapped.path, table.schema) for mapped, table in tables]
        kinds = {name: kind for name, (_, kind) in sources[0].items()}
        chosen = choose_columns(kinds, columns, {**saved.shapes, **shapes}, saved.files[0])
        names = [field.name for field in chosen.fields]
        for (mapped, table), own in zip(tables, sources, strict=True):
            if any(name not in own or str(own[name][1]) != str(kinds[name]) for name in names):
                raise SourceError(
                    f"{mapped.path} and {saved.files[0]} differ in columns or types; save them "
                    "again",
                    file=mapped.path,
                )
            for batch in table.to_batches():
                whole = fields.pyarrow().Table.from_batches([batch])
                self._parts.append(part_of_table(whole, {name: own[name][0] for name in names}))
                self._mapped.append(mapped)
        rows = [len(next(iter(part.values()))) for part in self._parts]
        parts = rows_of([StoredFile(one.path, one.stamp) for one in self._mapped], rows, folder)
        sizes = [mapped.stamp.size for mapped, _ in tables]
        listed = [f"{field.name}: {field}" for field in chosen.fields]
        described = f"huggingface {saved.fingerprint} {sizes} {listed}"
        identity = hashlib.sha256(described.encode()).hexdigest()
        super().__init__(parts, chosen, identity, classes=saved.classes)

    def load(self, parts: Sequence[int]) -> Iterator[tuple[int, Part]]:
        for number in parts:
            mapped = self._mapped[number]
            mapped.check()  # reading the mapping of a shortened file would end the process
            if number not in self._checked:
                self._validate(number)
            yield number, self._parts[number]
            mapped.check()

    def _validate(self, number: int) -> None:
        """Raises `SourceError` for offsets outside a batch, which PyArrow would follow."""
        path = self._mapped[number].path
        for name, column in self._parts[number].items():
            with fields.decoding(path, f"the column {name!r}"):
                column.validate(full=True)
        self._checked.add(number)

    def remedy(self, column: str) -> str:
        if column not in self._encoded:
            return ""
        return (
            "; if the row has only a file's path, load the data set where its files are, and write "
            "it again with ds.save_to_disk(FOLDER), which writes their bytes"
        )

    def _sources(self, path: str, schema: Any) -> Mapping[str, tuple[str, Any]]:
        """Returns the column and the type of each field in a flattened table."""
        with fields.decoding(path, "its schema"):
            kinds = fields.column_types(schema)
        names = {f"{name}.bytes": name for name in self._encoded}
        hidden = [f"{name}.path" for name in self._encoded]
        return {
            names.get(column, column): (column, kind)
            for column, kind in kinds.items()
            if column not in hidden
        }


def _map(path: str) -> tuple[MappedFile, Any]:
    arrow = fields.pyarrow()
    with fields.decoding(path, "it"):
        with reading(path, "open"):
            mapped = MappedFile(path)
        table = arrow.ipc.open_stream(arrow.memory_map(path)).read_all()
        table.validate()  # before its structs become columns
        mapped.check()
    return mapped, table
