"""An opened `tfrecord` source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.errors import SampleError, SourceError
from infeed_server.sources.base import Columns, Indices, InGraph, Provenance, Sample
from infeed_server.sources.features import FeatureOptions, parse_example
from infeed_server.sources.files import Stamp, stamp, why
from infeed_server.sources.framing import FRAME, unframe
from infeed_server.sources.handles import Handle, HandlePool
from infeed_server.sources.index import RecordIndex

RECORD = "record"
"""The one column: a serialized Example."""

_MAX_GAP = 16 << 10
"""Bytes between two records that are cheaper read along than skipped."""
_MAX_RUN = 8 << 20
"""Bytes read at once, unless one record is longer."""


class _Piece(NamedTuple):
    """A record that is asked for: its slot, and the place of its frame."""

    slot: int
    sample_id: int
    begin: int
    length: int

    @property
    def end(self) -> int:
        return self.begin + self.length + FRAME


class Records:
    """Records read by index, their CRCs checked each time. Thread-safe."""

    parsed = False

    def __init__(self, index: RecordIndex, features: Mapping[str, FeatureOptions]) -> None:
        self.index = index
        self._features = features
        self._handles = HandlePool(self._open)

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        return {RECORD: tf.TensorSpec((), tf.string)}

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
        return parse_example(columns[RECORD], self._features)

    def in_graph(self) -> InGraph:
        """Where each record lies, as constants; TensorFlow reads it there and checks its CRCs."""
        index = self.index
        size = index.first.nbytes + index.offsets.nbytes + index.lengths.nbytes
        paths = tuple(file.path for file in index.files)
        return InGraph(size + sum(map(len, paths)), paths, self._reader)

    def _reader(self) -> Callable[[tf.Tensor], Sample]:
        paths = tf.constant([file.path for file in self.index.files])
        first = tf.constant(self.index.first)
        offsets = tf.constant(self.index.offsets.astype(np.int64))
        lengths = tf.constant(self.index.lengths)

        def read(index: tf.Tensor) -> Sample:
            file = tf.searchsorted(first, index[tf.newaxis], side="right")[0] - 1
            records = tf.raw_ops.TFRecordDatasetV2(
                filenames=tf.gather(paths, [file]),
                compression_type="",
                # What is read ahead is the record's frame, and nothing of the next.
                buffer_size=tf.cast(tf.gather(lengths, index), tf.int64) + FRAME,
                byte_offsets=tf.gather(offsets, [index]),
            )
            kind = {"output_types": [tf.string], "output_shapes": [()]}
            one = tf.raw_ops.TakeDataset(
                input_dataset=records, count=tf.constant(1, tf.int64), **kind
            )
            (record,) = tf.raw_ops.DatasetToSingleElement(dataset=one, **kind)
            return {RECORD: record}

        return read

    def read(self, indices: Indices) -> Columns:
        """The records, in the order of `indices`; on disk they are read in the order they lie.

        Raises `SampleError` for the first in `indices` that is damaged, and `SourceError` when a
        file is gone or is not the one that was indexed.
        """
        records = np.empty(len(indices), object)
        bad: dict[int, SampleError] = {}
        # The index counts through the files in order, so its order is that of the disk.
        order = np.argsort(indices, kind="stable")
        files = np.searchsorted(self.index.first, indices[order], side="right") - 1
        for file in np.unique(files).tolist():
            slots = order[files == file]
            pieces = self._pieces(slots, indices[slots])
            with self._handles.borrow(file) as handle:
                for run in _runs(pieces):
                    bad.update(self._read_run(handle, file, run, records))
                # Records of the same lengths that were written over these have good CRCs too.
                self._check_stamp(file, handle.stamp() or self.index.files[file].stamp)
        if bad:
            raise bad[min(bad)]
        return {RECORD: records}

    def _pieces(self, slots: Indices, indices: Indices) -> list[_Piece]:
        columns = (slots, indices, self.index.offsets[indices], self.index.lengths[indices])
        return [_Piece(*piece) for piece in zip(*(c.tolist() for c in columns), strict=True)]

    def _read_run(
        self, handle: Handle, file: int, run: Sequence[_Piece], records: npt.NDArray[np.object_]
    ) -> dict[int, SampleError]:
        begin = run[0].begin
        size = max(piece.end for piece in run) - begin
        try:
            content = handle.read(begin, size)
        except (OSError, tf.errors.OpError) as error:
            return {piece.slot: self._bad(file, piece, why(error)) for piece in run}
        bad = {}
        for piece in run:
            frame = content[piece.begin - begin : piece.end - begin]
            try:
                records[piece.slot] = unframe(frame, piece.length)
            except ValueError as error:
                self._check_stamp(file, stamp(self.index.files[file].path))
                bad[piece.slot] = self._bad(file, piece, str(error))
        return bad

    def _bad(self, file: int, piece: _Piece, reason: str) -> SampleError:
        known = self.index.files[file]
        if piece.begin == known.truncated_at:
            reason = f"the file is truncated inside it, after {known.records} whole records"
        return SampleError(
            f"sample {piece.sample_id} cannot be read: {known.path}, record at byte "
            f"{piece.begin}: {reason}",
            sample_id=piece.sample_id,
            file=known.path,
            offset=piece.begin,
        )

    def _open(self, file: int) -> Handle:
        path = self.index.files[file].path
        self._check_stamp(file, stamp(path))
        try:
            return Handle(path)
        except (OSError, tf.errors.OpError) as error:
            raise SourceError(f"cannot open {path!r}: {why(error)}", file=path) from error

    def _check_stamp(self, file: int, now: Stamp) -> None:
        known = self.index.files[file]
        if now != known.stamp:
            raise SourceError(
                f"{known.path} changed since it was indexed: it had {known.stamp.size} bytes and "
                f"has {now.size}, modified at another time; restart the server to index it again",
                file=known.path,
            )


def _runs(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces that one read covers: near to each other and not too many bytes in all."""
    run: list[_Piece] = []
    for piece in pieces:
        if run and (piece.begin - run[-1].end > _MAX_GAP or piece.end - run[0].begin > _MAX_RUN):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
