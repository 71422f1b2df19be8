"""The `tfrecord` source: records of tf.train.Example in local or remote files."""

from __future__ import annotations

from typing import ClassVar

from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback
from infeed_server.sources.tfrecord.features import Features
from infeed_server.sources.tfrecord.index import build_index
from infeed_server.sources.tfrecord.preview import require_examples
from infeed_server.sources.tfrecord.reader import TFRecordReader
from infeed_server.storage.files import PathString


class TFRecordSource(FilesDefinition):
    """TFRecord files, uncompressed, in the sorted order of their paths."""

    kind: ClassVar[str] = "tfrecord"

    tfrecord: Paths
    """TFRecord files: a path, a glob, or a list of them."""
    features: Features
    """Features to parse, by name; each becomes a field."""
    index: PathString | None = None
    """Directory of the record index, instead of beside the data."""

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> TFRecordReader:
        """Opens the source; builds its record index unless one is cached. Raises `SourceError`.
        With `keep_damaged`, damaged and truncated records are samples that cannot be read."""
        index = build_index(self.list_files(), self.index, progress, keep_damaged=keep_damaged)
        if not len(index):
            raise self.nothing("record", len(index.files))
        for path in [file.path for file in index.files if file.records][:1]:
            require_examples(path)
        return TFRecordReader(index, self.features)
