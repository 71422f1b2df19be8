"""The reader of TFRecord files: records by index, with their CRCs verified.

A record that is damaged in the index is a bad sample on every server of the same identity. Damage
that the index does not have is a fault of this copy, and of this server.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
from infeed_server.sources.file_handles import FileHandle, FileHandlePool
from infeed_server.sources.files import FileStamp, changed_error, stat_file
from infeed_server.sources.storage_faults import retry_faults
from infeed_server.sources.tfrecord import preview
from infeed_server.sources.tfrecord.features import FeatureOptions, parse_example
from infeed_server.sources.tfrecord.framing import FRAME_BYTES, OtherRecordError, decode_record
from infeed_server.sources.tfrecord.index import IndexedFile, RecordIndex

RECORD_COLUMN = "record"
"""The only column: a serialized Example."""

_MAX_GAP = 16 << 10
"""Bytes between two records. A smaller gap costs less to read than a second read call."""
_MAX_READ = 8 << 20
"""Bytes read at once, unless one record is longer."""


class _Record(NamedTuple):
    """A requested record: its slot in the result, and the position of its frame in the file."""

    slot: int
    sample_id: int
    begin: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        return self.begin + self.length + FRAME_BYTES


class TFRecordReader(Source):
    """Reads records by index and verifies their CRCs each time. Thread-safe."""

    parsed = False

    def __init__(self, index: RecordIndex, features: Mapping[str, FeatureOptions]) -> None:
        self.index = index
        self._damaged = frozenset(index.damaged.tolist())
        self._features = features
        self._handles = FileHandlePool(self._open)
        self.columns = {RECORD_COLUMN: tf.TensorSpec((), tf.string)}
        options = {name: feature.model_dump_json() for name, feature in features.items()}
        self.identity = hashlib.sha256(f"tfrecord {index.identity} {options}".encode()).hexdigest()
        stamps = [file.stamp for file in index.files]
        self.stamp = hashlib.sha256(repr(stamps).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.index)

    def provenance(self, index: int) -> Provenance:
        file = self.index.files[self.index.file_of(index)]
        return Provenance(file.path, int(self.index.offsets[index]))

    def parse(self, columns: Sample) -> Sample:
        record = columns[RECORD_COLUMN]
        try:
            return parse_example(record, self._features)
        except tf.errors.InvalidArgumentError as error:  # outside of a graph: of this record alone
            problem = error.message.partition(" [Op:")[0].rstrip(". ")
            raise ValueError(f"{problem}; {preview.describe(record.numpy())}") from error

    def read(self, indices: Indices) -> Columns:
        """Returns the records in the order of `indices`. Raises `SampleError` for the first that is
        damaged in the index, and `SourceError` for a file that cannot be read, is damaged
        otherwise, or changed."""
        for index in indices.tolist() if self._damaged else ():
            if index in self._damaged:
                raise self._sample_error(index)
        records = np.empty(len(indices), object)
        # Indices count through the files in order, so sorting them sorts by file and offset.
        slots = np.argsort(indices, kind="stable")
        files = np.searchsorted(self.index.first, indices[slots], side="right") - 1
        for file in np.unique(files).tolist():
            requests = self._requests(slots[files == file], indices)
            read_file = partial(self._read_file, file, requests, records)
            retry_faults(read_file, self.index.files[file].path)
        return {RECORD_COLUMN: records}

    def _requests(self, slots: Indices, indices: Indices) -> list[_Record]:
        index, ids = self.index, indices[slots]
        columns = (slots, ids, index.offsets[ids], index.lengths[ids], index.crcs[ids])
        return [_Record(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]

    def _read_file(
        self, file: int, requests: Sequence[_Record], records: npt.NDArray[np.object_]
    ) -> None:
        """Reads records of one file. Raises `OSError` or `tf.errors.OpError` for a fault."""
        indexed = self.index.files[file]
        with self._handles.borrow(file) as handle:
            for group in _group_adjacent(requests):
                begin = group[0].begin
                content = handle.read(begin, max(record.end for record in group) - begin)
                for record in group:
                    frame = content[record.begin - begin : record.end - begin]
                    records[record.slot] = self._decode(indexed, record, frame)
            # A file that was written over has another time, even if its records have good CRCs.
            _check_stamp(indexed, handle.stamp() or indexed.stamp)

    def _decode(self, file: IndexedFile, record: _Record, frame: bytes) -> bytes:
        place = f"the record at byte {record.begin}"
        try:
            if len(frame) < record.end - record.begin:
                # The index has seen all of the record.
                raise OSError(errno.EIO, f"{place} is not read to its end")
            return decode_record(frame, record.length, record.crc)
        except OtherRecordError as error:
            # A saved index is valid while size and time are the same: it would be used again.
            rebuild = "run `infeed index --rebuild`, then "
            raise changed_error(
                file.path, "it was indexed", f"{place}: {error}", rebuild
            ) from error
        except (OSError, ValueError) as error:
            # A fault or damage, unless the file is being written.
            _check_stamp(file, stat_file(file.path))
            if isinstance(error, OSError):
                raise
            raise self._damage(file, record, str(error)) from error

    def _sample_error(self, index: int) -> SampleError:
        file = self.index.files[self.index.file_of(index)]
        offset = int(self.index.offsets[index])
        reason = "the CRC of its data does not match"
        if offset == file.truncated_at:
            reason = f"the file is truncated inside it, after {file.records} whole records"
        return SampleError(
            f"sample {index} cannot be read: {file.path}, record at byte {offset}: {reason}",
            sample_id=index,
            file=file.path,
            offset=offset,
        )

    def _damage(self, file: IndexedFile, record: _Record, reason: str) -> SourceError:
        same_everywhere = "set on_error: substitute or mask"
        if self.index.verified:
            same_everywhere = "run `infeed index --rebuild` and restart, on every server"
        return SourceError(
            f"{file.path} is damaged: sample {record.sample_id} cannot be read, record at byte "
            f"{record.begin}: {reason}; put a good copy in its place and restart the server, or "
            f"if every server's copy has this damage, {same_everywhere}",
            file=file.path,
            fault="damaged",
            offset=record.begin,
            sample_id=record.sample_id,
        )

    def _open(self, number: int) -> FileHandle:
        file = self.index.files[number]
        handle = FileHandle(file.path)
        _check_stamp(file, handle.stamp() or stat_file(file.path))
        return handle


def _check_stamp(file: IndexedFile, stamp: FileStamp) -> None:
    if stamp != file.stamp:
        raise changed_error(file.path, "it was indexed", file.stamp.difference(stamp))


def _group_adjacent(requests: Sequence[_Record]) -> Iterator[list[_Record]]:
    """Groups records for one read each: near to each other, and not too many bytes in total."""
    group = [requests[0]]
    for record in requests[1:]:
        if record.begin - group[-1].end > _MAX_GAP or record.end - group[0].begin > _MAX_READ:
            yield group
            group = []
        group.append(record)
    yield group
