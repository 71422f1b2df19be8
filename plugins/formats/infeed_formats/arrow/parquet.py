"""The `parquet` source: rows of Parquet files."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ByteSize, Field

from infeed_formats.arrow.fields import pyarrow
from infeed_formats.arrow.row_groups import RowGroups
from infeed_formats.arrow.tables import ColumnNames, Shapes
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback


class ParquetSource(FilesDefinition):
    """Parquet files, in the sorted order of their paths. Reading a row costs its row group."""

    kind: ClassVar[str] = "parquet"

    parquet: Paths
    """Parquet files: a path, a glob, or a list of them."""
    columns: ColumnNames | None = None
    """Columns to serve, each a field, such as `label` or, in a nested column, `image.bytes`; by
    default all that can be served."""
    shapes: Shapes | None = None
    """Shape of a column's lists if it is the same in all rows, as in `{box: [4]}`; without it,
    their size varies."""
    cache: Annotated[ByteSize, Field(ge=1 << 20)] = ByteSize(256 << 20)
    """Bytes of row groups that each process keeps in memory, decompressed."""

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> RowGroups:  # noqa: ARG002
        """Opens the files and reads their footers. Raises `SourceError` and `MissingExtraError`."""
        pyarrow()
        files = self.list_files()
        return RowGroups(files, self.columns, self.shapes or {}, self.cache)
