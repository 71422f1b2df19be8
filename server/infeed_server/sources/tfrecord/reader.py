"""The reader of TFRecord files: records by index, with their CRCs verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.errors import SampleError, SourceError
from infeed_server.sources.base import Columns, GraphReader, Indices, Provenance, Sample
from infeed_server.sources.file_handles import FileHandle, FileHandlePool
from infeed_server.sources.files import FileStamp, error_text, read_stamp
from infeed_server.sources.tfrecord.features import FeatureOptions, parse_example
from infeed_server.sources.tfrecord.framing import FRAME_BYTES, decode_record
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

    @property
    def end(self) -> int:
        return self.begin + self.length + FRAME_BYTES


class TFRecordReader:
    """Reads records by index and verifies their CRCs each time. Thread-safe."""

    parsed = False

    def __init__(self, index: RecordIndex, features: Mapping[str, FeatureOptions]) -> None:
        self.index = index
        self._features = features
        self._handles = FileHandlePool(self._open)

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        return {RECORD_COLUMN: tf.TensorSpec((), tf.string)}

    @property
    def identity(self) -> str:
        features = {name: feature.model_dump_json() for name, feature in self._features.items()}
        return hashlib.sha256(f"tfrecord {self.index.identity} {features}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.index)

    def provenance(self, index: int) -> Provenance:
        file = self.index.files[self.index.file_of(index)]
        return Provenance(file.path, int(self.index.offsets[index]))

    def parse(self, columns: Sample) -> Sample:
        return parse_example(columns[RECORD_COLUMN], self._features)

    def graph_reader(self) -> GraphReader:
        """Returns a reader with the record index as constants; TensorFlow verifies the CRCs."""
        index = self.index
        size = index.first.nbytes + index.offsets.nbytes + index.lengths.nbytes
        paths = tuple(file.path for file in index.files)
        return GraphReader(size + sum(map(len, paths)), paths, self._build_graph_reader)

    def _build_graph_reader(self) -> Callable[[tf.Tensor], Sample]:
        paths = tf.constant([file.path for file in self.index.files])
        first = tf.constant(self.index.first)
        offsets = tf.constant(self.index.offsets.astype(np.int64))
        lengths = tf.constant(self.index.lengths)

        def read(index: tf.Tensor) -> Sample:
            file = tf.searchsorted(first, index[tf.newaxis], side="right")[0] - 1
            records = tf.raw_ops.TFRecordDatasetV2(
                filenames=tf.gather(paths, [file]),
                compression_type="",
                # The buffer holds the record's frame alone, so nothing of the next one is read.
                buffer_size=tf.cast(tf.gather(lengths, index), tf.int64) + FRAME_BYTES,
                byte_offsets=tf.gather(offsets, [index]),
            )
            kind = {"output_types": [tf.string], "output_shapes": [()]}
            one = tf.raw_ops.TakeDataset(
                input_dataset=records, count=tf.constant(1, tf.int64), **kind
            )
            (record,) = tf.raw_ops.DatasetToSingleElement(dataset=one, **kind)
            return {RECORD_COLUMN: record}

        return read

    def read(self, indices: Indices) -> Columns:
        """Reads the records from disk in the order of their offsets; returns that of `indices`.

        Raises `SampleError` for the first in `indices` that is damaged, and `SourceError` when a
        file is missing or changed since it was indexed.
        """
        records = np.empty(len(indices), object)
        errors: dict[int, SampleError] = {}
        # Indices count through the files in order, so sorting them sorts by file and offset.
        order = np.argsort(indices, kind="stable")
        files = np.searchsorted(self.index.first, indices[order], side="right") - 1
        for file in np.unique(files).tolist():
            slots = order[files == file]
            requests = self._requests(slots, indices[slots])
            with self._handles.borrow(file) as handle:
                for group in _group_adjacent(requests):
                    errors.update(self._read_group(handle, file, group, records))
                # Records of the same lengths that were written over these have good CRCs too.
                self._check_stamp(file, handle.stamp() or self.index.files[file].stamp)
        if errors:
            raise errors[min(errors)]
        return {RECORD_COLUMN: records}

    def _requests(self, slots: Indices, indices: Indices) -> list[_RecordRequest]:
        columns = (slots, indices, self.index.offsets[indices], self.index.lengths[indices])
        return [_RecordRequest(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]

    def _read_group(
        self,
        handle: FileHandle,
        file: int,
        group: Sequence[_RecordRequest],
        records: npt.NDArray[np.object_],
    ) -> dict[int, SampleError]:
        """Reads a group into `records`; returns the errors by slot."""
        begin = group[0].begin
        size = max(request.end for request in group) - begin
        try:
            content = handle.read(begin, size)
        except (OSError, tf.errors.OpError) as error:
            reason = error_text(error)
            return {request.slot: self._sample_error(file, request, reason) for request in group}
        errors = {}
        for request in group:
            frame = content[request.begin - begin : request.end - begin]
            try:
                records[request.slot] = decode_record(frame, request.length)
            except ValueError as error:
                self._check_stamp(file, read_stamp(self.index.files[file].path))
                errors[request.slot] = self._sample_error(file, request, str(error))
        return errors

    def _sample_error(self, file: int, request: _RecordRequest, reason: str) -> SampleError:
        indexed = self.index.files[file]
        if request.begin == indexed.truncated_at:
            reason = f"the file is truncated inside it, after {indexed.records} whole records"
        return SampleError(
            f"sample {request.sample_id} cannot be read: {indexed.path}, record at byte "
            f"{request.begin}: {reason}",
            sample_id=request.sample_id,
            file=indexed.path,
            offset=request.begin,
        )

    def _open(self, file: int) -> FileHandle:
        path = self.index.files[file].path
        self._check_stamp(file, read_stamp(path))
        try:
            return FileHandle(path)
        except (OSError, tf.errors.OpError) as error:
            raise SourceError(f"cannot open {path!r}: {error_text(error)}", file=path) from error

    def _check_stamp(self, file: int, stamp: FileStamp) -> None:
        indexed = self.index.files[file]
        if stamp != indexed.stamp:
            raise SourceError(
                f"{indexed.path} changed since it was indexed: it had {indexed.stamp.size} bytes "
                f"and has {stamp.size}, modified at another time; restart the server to index it "
                "again",
                file=indexed.path,
            )


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
