"""The reader of TFRecord files in a graph of TensorFlow operations alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed_server.sources.base import NO_DEFECT, GraphRead, Sample
from infeed_server.sources.tfrecord.framing import FRAME_BYTES
from infeed_server.sources.tfrecord.index import RecordIndex

RECORD_COLUMN = "record"
"""The only column: a serialized Example."""


@dataclass(frozen=True)
class _Location:
    """Where a record is: its file and that file's size, and the offset and length of its data."""

    path: tf.Tensor
    file_size: tf.Tensor
    offset: tf.Tensor
    length: tf.Tensor


def graph_record_reader(index: RecordIndex, *, strict: bool) -> GraphRead:
    """Returns the function that reads a record by its number, with the index as constants.

    With `strict`, it fails for every record that it cannot read. Otherwise a damaged one has a
    defect, and only a fault of storage fails.

    TensorFlow's reader has one kind of error for all of a record's problems, and a graph cannot
    tell their codes apart. So a record that it cannot read is read once more without its checksums:
    if that fails too, storage is at fault, and so does the graph. Otherwise the fault may have
    passed, so the record is tried again; if it fails again, its bytes are damaged.
    """
    paths = tf.constant([file.path for file in index.files])
    sizes = tf.constant([file.stamp.size for file in index.files], tf.int64)
    first = tf.constant(index.first)
    offsets = tf.constant(index.offsets.astype(np.int64))
    lengths = tf.constant(index.lengths)

    def read(number: tf.Tensor) -> tuple[Sample, str | tf.Tensor]:
        file = tf.searchsorted(first, number[tf.newaxis], side="right")[0] - 1
        place = _Location(
            tf.gather(paths, file),
            tf.gather(sizes, file),
            tf.gather(offsets, number),
            tf.cast(tf.gather(lengths, number), tf.int64),
        )
        if strict:
            return {RECORD_COLUMN: _read_record(place)}, NO_DEFECT
        record = _try_record(place)
        record = tf.cond(_is_whole(record, place), lambda: record, lambda: _try_again(place))
        offset = tf.strings.as_string(place.offset)
        damaged = tf.strings.join([place.path, ": damaged record at byte ", offset])
        defect = tf.where(_is_whole(record, place), NO_DEFECT, damaged)
        return {RECORD_COLUMN: record}, defect

    return read


def _read_record(place: _Location) -> tf.Tensor:
    """Returns the record. Fails if storage does, and if the record is damaged."""
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=place.path[tf.newaxis],
        compression_type="",
        # The buffer holds the record's frame alone, so nothing of the next one is read.
        buffer_size=place.length + FRAME_BYTES,
        byte_offsets=place.offset[tf.newaxis],
    )
    return _first(records)


def _try_record(place: _Location) -> tf.Tensor:
    """Returns the record, or a string of another length if it cannot be read."""

    def read(*location: tf.Tensor) -> tf.Tensor:
        return _read_record(_Location(*location))

    # The error is that of one element of a map: a reader's own would be met again, forever.
    one = tf.data.Dataset.from_tensors(tuple(vars(place).values())).map(read)
    other = tf.data.Dataset.from_tensors(tf.where(place.length == 0, "?", ""))
    return one.ignore_errors(log_warning=True).concatenate(other).take(1).get_single_element()


def _is_whole(record: tf.Tensor, place: _Location) -> tf.Tensor:
    return tf.cast(tf.strings.length(record), tf.int64) == place.length


def _try_again(place: _Location) -> tf.Tensor:
    # The file can end inside of the last record.
    size = tf.minimum(place.length + FRAME_BYTES, place.file_size - place.offset)
    bytes_alone = tf.raw_ops.FixedLengthRecordDatasetV2(
        filenames=place.path[tf.newaxis],
        header_bytes=place.offset,
        record_bytes=size,
        # Fails as well if the file has another size.
        footer_bytes=place.file_size - place.offset - size,
        buffer_size=size,
        compression_type="",
    )
    with tf.control_dependencies([_first(bytes_alone)]):
        return _try_record(place)


def _first(records: tf.Tensor) -> tf.Tensor:
    one_string = {"output_types": [tf.string], "output_shapes": [()]}
    one = tf.raw_ops.TakeDataset(
        input_dataset=records, count=tf.constant(1, tf.int64), **one_string
    )
    (record,) = tf.raw_ops.DatasetToSingleElement(dataset=one, **one_string)
    return record
