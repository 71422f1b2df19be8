"""The `webdataset` source: tars in which members with the same key are a sample's fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from infeed_formats.webdataset.fields import (
    FieldText,
    default_fields,
    require_few_extensions,
    tar_fields,
)
from infeed_formats.webdataset.index import build_index
from infeed_formats.webdataset.reader import WebDatasetReader
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback
from infeed_server.storage.files import PathString
from infeed_server.storage.stamp import StoredFile


class WebDatasetSource(FilesDefinition):
    """Uncompressed tars of samples, in the sorted order of their paths."""

    kind: ClassVar[str] = "webdataset"
    indexed_ending: ClassVar[str] = ".tar"

    webdataset: Paths
    """Tars: a path, a glob, or a list of them."""
    fields: Annotated[dict[str, FieldText], Field(min_length=1)] | None = None
    """Fields to serve by name: an extension, or alternatives such as `jpg;jpeg;png`, with a type if
    needed, `bytes` or `int64`, as in `{cls: bytes}`; by default each extension of the first sample,
    with `_` for its dots."""
    index: PathString | None = None
    """Directory of the record index; by default beside the data."""

    @field_validator("fields")
    @classmethod
    def _check(cls, fields: dict[str, FieldText] | None) -> dict[str, FieldText] | None:
        tar_fields(fields or {})
        return fields

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> WebDatasetReader:
        """Opens the source and builds the index of each tar if none is cached. With `keep_damaged`,
        truncated samples are unreadable samples. Raises `SourceError`."""
        files = self.list_files()
        tars = build_index(files, self.index, progress, keep_damaged=keep_damaged)
        first = next((tar.members for tar in tars if tar.samples), None)
        if first is None:
            raise self.nothing("sample", len(files))
        if self.fields is None:
            known = [text for tar in tars for text in tar.members.extensions.tolist()]
            require_few_extensions(known, sum(tar.samples for tar in tars))
        names = first.extensions[first.kinds[first.samples == 0]].tolist()
        return WebDatasetReader(tars, tar_fields(self.fields or default_fields(names)))

    @classmethod
    def index_files(
        cls,
        files: Sequence[StoredFile],
        directory: str | None,
        progress: ProgressCallback,
        *,
        rebuild: bool,
    ) -> Iterator[str]:
        tars = build_index(files, directory, progress, rebuild=rebuild)
        for tar in tars:
            state = "checked" if tar.cached else "built"
            yield f"{tar.file.path}: {tar.samples} samples, index {state}"
        yield f"{sum(tar.samples for tar in tars)} samples in {len(tars)} files"
