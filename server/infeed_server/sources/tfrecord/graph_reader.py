"""The reader of TFRecord files in a graph of TensorFlow operations alone."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from infeed_server.sources.base import NO_DEFECT, GraphRead, Sample
from infeed_server.sources.tfrecord.framing import FRAME_BYTES
from infeed_server.sources.tfrecord.index import RecordIndex

RECORD_COLUMN = "record"
"""The only column: a serialized Example."""


def graph_record_reader(index: RecordIndex) -> GraphRead:
    """Returns the function that reads a record by its number, with the index as constants.

    Records that are damaged in the index have a defect. The graph fails for every other record
    that it cannot read, for storage or this copy of the file is at fault then.
    """
    paths = tf.constant([file.path for file in index.files])
    first = tf.constant(index.first)
    offsets = tf.constant(index.offsets.astype(np.int64))
    lengths = tf.constant(index.lengths)
    damaged = tf.constant(index.damaged)

    def read(number: tf.Tensor) -> tuple[Sample, str | tf.Tensor]:
        file = tf.searchsorted(first, number[tf.newaxis], side="right")[0] - 1
        path, offset = tf.gather(paths, file), tf.gather(offsets, number)

        def read_record() -> tf.Tensor:
            return _read_record(path, offset, tf.cast(tf.gather(lengths, number), tf.int64))

        if not len(index.damaged):
            return {RECORD_COLUMN: read_record()}, NO_DEFECT
        is_damaged = tf.reduce_any(damaged == number)
        record = tf.cond(is_damaged, lambda: tf.constant(b""), read_record)
        defect = tf.strings.join([path, ": damaged record at byte ", tf.strings.as_string(offset)])
        return {RECORD_COLUMN: record}, tf.where(is_damaged, defect, NO_DEFECT)

    return read


def _read_record(path: tf.Tensor, offset: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns the record, verified. Fails if it is damaged, or storage fails."""
    one_string = {"output_types": [tf.string], "output_shapes": [()]}
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[tf.newaxis],
        compression_type="",
        # The buffer holds the record's frame alone, so nothing of the next one is read.
        buffer_size=length + FRAME_BYTES,
        byte_offsets=offset[tf.newaxis],
    )
    one = tf.raw_ops.TakeDataset(
        input_dataset=records, count=tf.constant(1, tf.int64), **one_string
    )
    (record,) = tf.raw_ops.DatasetToSingleElement(dataset=one, **one_string)
    message = ["changed since it was indexed: the record's length", path, offset]
    same_length = tf.cast(tf.strings.length(record), tf.int64) == length
    with tf.control_dependencies([tf.debugging.Assert(same_length, message)]):
        return tf.identity(record)
