"""The `arrayrecord` source: records in local ArrayRecord files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from pydantic import field_validator

from infeed_formats.arrayrecord.reader import (
    ArrayRecordReader,
    RecordFile,
    open_reader,
    read_first,
    whole,
)
from infeed_formats.tfrecord.features import Features
from infeed_formats.tfrecord.preview import require_examples
from infeed_server.sources.base import FilesDefinition, Paths, ProgressCallback
from infeed_server.storage.files import changed_error, is_remote, reading
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.stamp import StoredFile

log = logging.getLogger(__name__)

_OPENED_AT_ONCE = 16
"""Files opened concurrently at start, to hide a file system's latency."""

_TAIL_BYTES, _TAIL_BYTES_PER_RECORD = 3 << 16, 32
"""Bytes at a file's end that surely contain the footer, with the offset and size of each group of
records, and the 64 KiB blocks around it."""


class ArrayRecordSource(FilesDefinition):
    """ArrayRecord files, in the sorted order of their paths."""

    kind: ClassVar[str] = "arrayrecord"

    arrayrecord: Paths
    """Local ArrayRecord files: a path, a glob, or a list of them."""
    features: Features | None = None
    """Features to parse from records that are `tf.train.Example`, as for `tfrecord`; each becomes a
    field. Without it, the only field is `record`, the bytes of a record."""

    @field_validator("arrayrecord")
    @classmethod
    def _check(cls, value: str | list[str]) -> str | list[str]:
        for path in [value] if isinstance(value, str) else value:
            if is_remote(path):
                raise ValueError(
                    f"{path!r} is in a store, but ArrayRecord's library reads only local files; "
                    "copy the files to this host, or store them as TFRecords with infeed pack COPY "
                    "STORE and use tfrecord"
                )
        return value

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> ArrayRecordReader:  # noqa: ARG002
        """Opens each file and reads its footer. Raises `SourceError`."""
        with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
            files = list(pool.map(_look_at, self.list_files()))
        if not any(file.records for file in files):
            raise self.nothing("record", len(files))
        if self.features:
            require_examples(next(one.file.path for one in files if one.records), read_first)
        _warn_of_groups(files)
        return ArrayRecordReader(files, self.features)


def _look_at(file: StoredFile) -> RecordFile:
    with reading(file.path):
        reader = open_reader(file.path)
        with whole(file.path):
            records, options = reader.num_records(), reader.writer_options_string() or ""
            reader.close()  # fails if the file is shorter than its footer states
        with FileHandle(file.path) as handle:
            size = min(file.stamp.size, _TAIL_BYTES + _TAIL_BYTES_PER_RECORD * records)
            tail = handle.read(file.stamp.size - size, size)
            if handle.stamp() != file.stamp:
                raise changed_error(file.path)
    digest = hashlib.sha256(f"{file.stamp.size} {records} {options}\n".encode() + tail)
    return RecordFile(file, records, options, digest.hexdigest())


def _warn_of_groups(files: Sequence[RecordFile]) -> None:
    grouped = [file for file in files if file.group_size > 1]
    if grouped:
        log.warning(
            "%s: written with group_size:%d (%d of %d files), so each read of a record "
            "decompresses its group; use `shuffle: {mode: window, ...}`, or write the files with "
            "group_size:1",
            *(grouped[0].file.path, grouped[0].group_size, len(grouped), len(files)),
        )
