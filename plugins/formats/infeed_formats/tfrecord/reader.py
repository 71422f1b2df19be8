"""The reader of TFRecord files: records by index, with their CRCs verified.

A record that the index lists as damaged is a bad sample on every server with the same identity.
Damage that the index does not list is a fault of this copy, and of this server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_formats.tfrecord.features import FeatureOptions, parse_record
from infeed_formats.tfrecord.framing import FRAME_BYTES, OtherRecordError, decode_record
from infeed_formats.tfrecord.index import RecordIndex
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices, Located
from infeed_server.storage.files import changed_error, damaged_error, reading
from infeed_server.storage.stamp import StoredFile

RECORD_COLUMN = "record"
"""The only column: a serialized Example."""


class TFRecordReader(Source):
    """Reads records by index and verifies their CRCs each time. Thread-safe."""

    def __init__(self, index: RecordIndex, features: Mapping[str, FeatureOptions]) -> None:
        self.index = index
        self._damaged = frozenset(index.damaged.tolist())
        self.features = features
        files = [StoredFile(file.path, file.stamp) for file in index.files]
        self._records = Located(files, np.diff(index.first), index.offsets)
        options = {name: feature.model_dump_json() for name, feature in features.items()}
        identity = hashlib.sha256(f"tfrecord {index.identity} {options}".encode()).hexdigest()
        columns = {RECORD_COLUMN: tf.TensorSpec((), tf.string)}
        super().__init__(self._records, columns, identity, parsed=False)

    def parse(self, columns: Sample) -> Sample:
        return parse_record(columns[RECORD_COLUMN], self.features)

    def read(self, indices: Indices) -> Columns:
        """Returns the records in the order of `indices`. Raises `SampleError` for the first one
        that the index lists as damaged, and `SourceError` for an unreadable or changed file or
        other damage."""
        for index in indices.tolist() if self._damaged else ():
            if index in self._damaged:
                raise self._bad_sample(index)
        lengths = self.index.lengths[indices].astype(np.int64)
        records = self._records.read(indices, lengths + FRAME_BYTES)
        crcs = self.index.crcs[indices].tolist()
        for slot, (frame, length, crc) in enumerate(
            zip(records.tolist(), lengths.tolist(), crcs, strict=True)
        ):
            try:
                records[slot] = decode_record(frame, length, crc)
            except ValueError as error:
                raise self._wrong_record(int(indices[slot]), error) from error
        return {RECORD_COLUMN: records}

    def _wrong_record(self, index: int, error: ValueError) -> SourceError:
        """Returns the error for a record that does not match the index. Raises `SourceError` if its
        file changed."""
        number, place = self._records.file_of(index), self._records.provenance(index)
        if isinstance(error, OtherRecordError):
            # A stored index stays valid while size and time do not change, so it would be reused.
            rebuild = "run `infeed index --rebuild`, then "
            problem = f"the record at byte {place.offset}: {error}"
            return changed_error(place.file, problem, rebuild)
        with reading(place.file):
            self._records.ranges.check(number)  # or it is being written
        same_everywhere = "set on_error: substitute or mask"
        if self.index.verified:
            same_everywhere = "run `infeed index --rebuild` and restart, on every server"
        return damaged_error(
            place.file,
            f" is damaged, the record at byte {place.offset}: {error}",
            "put a good copy in its place and restart the server, or if every server's copy has "
            f"this damage, {same_everywhere}",
            offset=place.offset,
            sample=index,
        )

    def _bad_sample(self, index: int) -> SampleError:
        file = self.index.files[self._records.file_of(index)]
        offset = int(self._records.begins[index])
        reason = "the CRC of its data does not match"
        if offset == file.truncated_at:
            reason = f"the file is truncated inside it, after {file.records} whole records"
        return self.sample_error(index, reason, f"{file.path}, record at byte {offset}")
