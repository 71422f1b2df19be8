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
from infeed_server.sources.tfrecord.index import RecordIndex

RECORD_COLUMN = "record"
"""The only column: a serialized Example."""

_MAX_GAP = 16 << 10
"""Bytes between two records. A smaller gap costs less to read than a second read call."""
_MAX_READ = 8 << 20
"""Bytes read at once, unless one record is longer."""


class _RecordRequest(NamedTuple):
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
        """Reads the records from disk by their offsets; returns them in the order of `indices`.

        Raises `SampleError` for the first in `indices` that is damaged in the index, and
        `SourceError` when a file cannot be read, is damaged otherwise, or changed since it was
        indexed.
        """
        for index in indices.tolist() if self._damaged else ():
            if index in self._damaged:
                raise self._sample_error(index)
        records = np.empty(len(indices), object)
        # Indices count through the files in order, so sorting them sorts by file and offset.
        order = np.argsort(indices, kind="stable")
        files = np.searchsorted(self.index.first, indices[order], side="right") - 1
        for file in np.unique(files).tolist():
            slots = order[files == file]
            requests = self._requests(slots, indices[slots])
            read_file = partial(self._read_file, file, requests, records)
            retry_faults(read_file, self.index.files[file].path)
        return {RECORD_COLUMN: records}

    def _requests(self, slots: Indices, indices: Indices) -> list[_RecordRequest]:
        index = self.index
        positions = (index.offsets[indices], index.lengths[indices], index.crcs[indices])
        columns = [column.tolist() for column in (slots, indices, *positions)]
        return [_RecordRequest(*row) for row in zip(*columns, strict=True)]

    def _read_file(
        self, file: int, requests: Sequence[_RecordRequest], records: npt.NDArray[np.object_]
    ) -> None:
        """Reads records of one file into `records`.

        Raises `OSError` or `tf.errors.OpError` for a storage fault; the file is then closed.
        """
        with self._handles.borrow(file) as handle:
            for group in _group_adjacent(requests):
                self._read_group(handle, file, group, records)
            # A file that was written over has another time, even if its records have good CRCs.
            self._check_stamp(file, handle.stamp() or self.index.files[file].stamp)

    def _read_group(
        self,
        handle: FileHandle,
        file: int,
        group: Sequence[_RecordRequest],
        records: npt.NDArray[np.object_],
    ) -> None:
        """Reads a group into `records`."""
        begin = group[0].begin
        size = max(request.end for request in group) - begin
        content = handle.read(begin, size)
        for request in group:
            frame = content[request.begin - begin : request.end - begin]
            try:
                records[request.slot] = self._decode(file, request, frame)
            except ValueError as error:
                # Damage, unless the file is being written.
                self._check_stamp(file, stat_file(self.index.files[file].path))
                raise self._damage(file, request, str(error)) from error

    def _decode(self, file: int, request: _RecordRequest, frame: bytes) -> bytes:
        indexed = self.index.files[file]
        if len(frame) < request.end - request.begin:
            self._check_stamp(file, stat_file(indexed.path))
            # The index has seen all of the record.
            raise OSError(errno.EIO, f"the record at byte {request.begin} is not read to its end")
        try:
            return decode_record(frame, request.length, request.crc)
        except OtherRecordError as error:
            difference = f"the record at byte {request.begin}: {error}"
            # A saved index is valid while these are the same, so a restart would use it again.
            same_stamp = stat_file(indexed.path) == indexed.stamp
            rebuild = "size and time are the same, so run `infeed index --rebuild`, then "
            first = rebuild if same_stamp else ""
            raise changed_error(indexed.path, "it was indexed", difference, first) from error

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

    def _damage(self, file: int, request: _RecordRequest, reason: str) -> SourceError:
        path, same_everywhere = self.index.files[file].path, "set on_error: substitute or mask"
        if self.index.verified:
            same_everywhere = "run `infeed index --rebuild` and restart, on every server"
        return SourceError(
            f"{path} is damaged: sample {request.sample_id} cannot be read, record at byte "
            f"{request.begin}: {reason}; put a good copy in its place and restart the server, or "
            f"if every server's copy has this damage, {same_everywhere}",
            file=path,
            fault="damaged",
            offset=request.begin,
            sample_id=request.sample_id,
        )

    def _open(self, file: int) -> FileHandle:
        path = self.index.files[file].path
        handle = FileHandle(path)
        self._check_stamp(file, handle.stamp() or stat_file(path))
        return handle

    def _check_stamp(self, file: int, stamp: FileStamp) -> None:
        indexed = self.index.files[file]
        if stamp != indexed.stamp:
            difference = indexed.stamp.difference(stamp)
            raise changed_error(indexed.path, "it was indexed", difference)


def _group_adjacent(requests: Sequence[_RecordRequest]) -> Iterator[list[_RecordRequest]]:
    """Groups requests for one read each: near to each other, and not too many bytes in total."""
    group: list[_RecordRequest] = []
    for request in requests:
        if group and (
            request.begin - group[-1].end > _MAX_GAP or request.end - group[0].begin > _MAX_READ
        ):
            yield group
            group = []
        group.append(request)
    if group:
        yield group
