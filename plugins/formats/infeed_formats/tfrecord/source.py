"""The `tfrecord` source: records of tf.train.Example in local or remote files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from infeed_formats.tfrecord.features import Features
from infeed_formats.tfrecord.index import build_index, refuse_truncated
from infeed_formats.tfrecord.preview import require_examples
from infeed_formats.tfrecord.reader import TFRecordReader
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback
from infeed_server.storage.files import PathString
from infeed_server.storage.stamp import StoredFile


class TFRecordSource(FilesDefinition):
    """Uncompressed TFRecord files, in the sorted order of their paths."""

    kind: ClassVar[str] = "tfrecord"
    indexed_ending: ClassVar[str] = ".tfrecord"

    tfrecord: Paths
    """TFRecord files: a path, a glob, or a list of them."""
    features: Features
    """Features to parse, by name; each becomes a field."""
    index: PathString | None = None
    """Directory of the record index; by default beside the data."""

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> TFRecordReader:
        """Opens the source and builds its record index if none is cached. Raises `SourceError`.
        With `keep_damaged`, damaged and truncated records are unreadable samples."""
        index = build_index(self.list_files(), self.index, progress, keep_damaged=keep_damaged)
        if not len(index):
            raise self.nothing("record", len(index.files))
        for path in [file.path for file in index.files if file.records][:1]:
            require_examples(path)
        return TFRecordReader(index, self.features)

    @classmethod
    def index_files(
        cls,
        files: Sequence[StoredFile],
        directory: str | None,
        progress: ProgressCallback,
        *,
        rebuild: bool,
    ) -> Iterator[str]:
        found = build_index(files, directory, progress, keep_damaged=True, rebuild=rebuild)
        for file in found.files:
            refuse_truncated(file)
        for file in found.files:
            state = "checked" if file.cached else "built"
            yield f"{file.path}: {file.records} records, index {state}"
        damaged = f", {len(found.damaged)} of them damaged" if len(found.damaged) else ""
        total = f"{len(found)} records in {len(found.files)} files{damaged}"
        yield f"{total}, identity {found.identity[:32]}"
