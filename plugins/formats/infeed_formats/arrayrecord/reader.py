"""The reader of ArrayRecord files: records by index, verified by the library's hashes."""

from __future__ import annotations

import errno
import hashlib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infeed.shared.errors import MissingExtraError, SourceError
from infeed_formats.tfrecord.features import FeatureOptions, parse_record
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices, InFiles
from infeed_server.storage.faults import retry_faults
from infeed_server.storage.files import changed_error, damaged_error, reading, stat_file
from infeed_server.storage.handles import FileHandlePool
from infeed_server.storage.stamp import StoredFile

RECORD_COLUMN = "record"
"""The only column, and without `features` the only field: the bytes of a record."""

_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""The options of a reader: it reads only the requested records."""
_BUFFER_BYTES = 32 << 10
"""Minimum bytes of a read. The library's default, 1 MiB, suits sequential reads."""

_LARGE_RECORD = 16 << 10
"""Bytes. Larger records are read one by one: the library's threads would cost more."""

_SYSTEM_CALL_FAILED = "() failed: "
"""A part of the library's messages about failed system calls; those about content lack it."""


class RecordFile(NamedTuple):
    """One file as opened at start."""

    file: StoredFile
    records: int
    writer_options: str
    digest: str
    """A hash of its size, options and footer."""

    @property
    def group_size(self) -> int:
        """The number of records compressed together; 1 if the file does not state it."""
        match = re.search(r"group_size:(\d+)", self.writer_options)
        return int(match[1]) if match else 1

    @property
    def is_read_one_by_one(self) -> bool:
        return self.group_size == 1 and self.file.stamp.size >= _LARGE_RECORD * self.records


def open_reader(path: str) -> Any:
    """Returns the library's reader, for one thread at a time. Its threads do not survive a fork.
    Raises `OSError`, `SourceError` for an incomplete file, and `MissingExtraError`."""
    with whole(path):
        reader = library().ArrayRecordReader(
            path, options=_OPTIONS, file_reader_buffer_size=_BUFFER_BYTES
        )
        if not reader.ok():
            reader.read([0])  # raises the reason, which `ok` omits
    return reader


def read_first(path: str, count: int) -> list[bytes]:
    """Returns at most `count` records of a local file. Raises `SourceError`."""
    with reading(path), whole(path):
        reader = open_reader(path)
        records: list[bytes] = reader.read(list(range(min(count, reader.num_records()))))
    return records


@contextmanager
def whole(path: str) -> Iterator[None]:
    """Turns the library's errors about a file into a `SourceError` or `OSError`."""
    try:
        yield
    except RuntimeError as error:
        raise damaged_error(
            path,
            f" is not a complete ArrayRecord file: {_problem(error)}",
            "it is truncated, damaged, was not closed by its writer, or has another format: copy "
            "or write it again",
        ) from error


@cache
def library() -> Any:
    """Returns the library's module. Raises `MissingExtraError`."""
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise MissingExtraError(
            "ArrayRecord files need array_record: pip install 'infeed[formats]'"
        ) from error


class ArrayRecordReader(Source):
    """Reads records by index, with a reader for each file and thread. Thread-safe."""

    def __init__(
        self, files: Sequence[RecordFile], features: Mapping[str, FeatureOptions] | None
    ) -> None:
        self._records = InFiles([file.file for file in files], [file.records for file in files])
        self._one_by_one = [file.is_read_one_by_one for file in files]
        self._features = features
        self._readers = FileHandlePool(lambda number: open_reader(files[number].file.path))
        options = {name: feature.model_dump_json() for name, feature in (features or {}).items()}
        digests = [file.digest for file in files]
        identity = hashlib.sha256(f"arrayrecord {digests} {options}".encode()).hexdigest()
        columns = {RECORD_COLUMN: tf.TensorSpec((), tf.string)}
        super().__init__(self._records, columns, identity, parsed=features is None)

    def parse(self, columns: Sample) -> Sample:
        if self._features is None:
            return columns
        return parse_record(columns[RECORD_COLUMN], self._features)

    def read(self, indices: Indices) -> Columns:
        """Returns the records in the order of `indices`. Raises `SourceError` for an unreadable,
        damaged or changed file."""
        records = np.empty(len(indices), object)
        # Sorted to read records of one group together.
        slots = np.argsort(indices, kind="stable")
        numbers = self._records.files_of(indices[slots])
        for number in np.unique(numbers).tolist():
            of_file = slots[numbers == number]
            positions = (indices[of_file] - self._records.first[number]).tolist()
            read = partial(self._read_file, number, positions)
            records[of_file] = retry_faults(read, self._records.files[number].path)
        return {RECORD_COLUMN: records}

    def _read_file(self, number: int, positions: list[int]) -> Sequence[bytes]:
        """Returns records of a file. Raises `OSError` and `SourceError`."""
        self._check(number)
        try:
            with self._readers.borrow(number) as reader:
                if self._one_by_one[number]:
                    records = [reader.read([position])[0] for position in positions]
                else:
                    records = reader.read(positions)
        except RuntimeError as error:
            self._check(number)  # or it is being written
            problem = _problem(error)
            if len(positions) > 1:  # the library does not report which one
                return [self._read_file(number, [position])[0] for position in positions]
            raise self._damaged(number, positions[0], problem) from error
        self._check(number)
        return records

    def _check(self, number: int) -> None:
        """Raises `SourceError` if the file changed, `OSError` if its status cannot be read."""
        path, listed = self._records.files[number]
        if (stamp := stat_file(path)) != listed:
            raise changed_error(path, listed.difference(stamp))

    def _damaged(self, number: int, position: int, problem: str) -> SourceError:
        index = int(self._records.first[number]) + position
        return damaged_error(
            self._records.files[number].path,
            f" is damaged, record {position}: {problem}",
            "put a good copy in its place and restart the server, or if every server's copy has "
            "this damage, write the file again without the record",
            sample=index,
        )


def _problem(error: RuntimeError) -> str:
    """Returns the library's problem with a file. Raises `OSError` for a failed system call."""
    problem = str(error).partition("; ")[0]
    if _SYSTEM_CALL_FAILED in problem:
        raise OSError(errno.EIO, problem) from error
    return problem or "the library gives no reason"
