"""Readers in a graph: the samples of a source through TensorFlow operations alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from infeed.shared.spec import Array
from infeed_server.sources import Source
from infeed_server.sources.arrays.source import ArrayReader, to_wire
from infeed_server.sources.base import Sample
from infeed_server.sources.images.source import ImageReader
from infeed_server.sources.tfrecord.framing import FRAME_BYTES
from infeed_server.sources.tfrecord.index import RecordIndex
from infeed_server.sources.tfrecord.reader import RECORD_COLUMN, TFRecordReader

FILE_CHANGED = "changed since it was listed:"
"""In the error of a graph: TensorFlow has no code for it."""

GraphRead: TypeAlias = "Callable[[tf.Tensor], tuple[Sample, str | tf.Tensor]]"
"""A function from an index, int64 scalar, to the sample's columns and its defect: a text, empty
unless the sample is bad. A fault of storage is an error of the graph instead."""

NO_DEFECT = ""


@dataclass(frozen=True)
class GraphReader:
    """A reader of a source made of TensorFlow ops only, for graphs that run without infeed.

    `size_bytes` is the size of its constants, `paths` are the files that it reads. `build` creates
    the constants and returns the function that reads.
    """

    size_bytes: int
    paths: tuple[str, ...]
    build: Callable[[], GraphRead]


def graph_reader(source: Source) -> GraphReader:
    """Returns the reader of a source in files or arrays. Cheap: only `build` makes constants."""
    if isinstance(source, TFRecordReader):
        index = source.index
        size = index.first.nbytes + index.offsets.nbytes + index.lengths.nbytes
        paths = tuple(file.path for file in index.files)
        return GraphReader(size + sum(map(len, paths)), paths, partial(_record_reader, index))
    if isinstance(source, ImageReader):
        return GraphReader(_image_bytes(source), (source.root,), partial(_image_reader, source))
    assert isinstance(source, ArrayReader)
    size = sum(_wire_bytes(stored.array) for stored in source.stored.values())
    return GraphReader(size, (), partial(_array_reader, source))


def _wire_bytes(array: Array) -> int:
    """Returns an upper bound of the bytes that an array takes when it is sent."""
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _array_reader(source: ArrayReader) -> GraphRead:
    source.check_files()
    constants = {n: tf.constant(to_wire(stored.array)) for n, stored in source.stored.items()}
    source.check_files()

    def read(index: tf.Tensor) -> tuple[Sample, str]:
        return {name: tf.gather(rows, index) for name, rows in constants.items()}, NO_DEFECT

    return read


def _image_bytes(source: ImageReader) -> int:
    strings = [source.paths]
    size = len(source) * (1 + source.sizes.itemsize)
    if source.labels is not None:
        size += source.labels.values.nbytes
        strings += [source.labels.values] if source.labels.values.dtype == object else []
    return size + sum(len(text) for texts in strings for text in texts)


def _image_reader(source: ImageReader) -> GraphRead:
    """Returns the equivalent of `read` over constants, without the times of files."""
    paths, sizes = tf.constant(source.paths), tf.constant(source.sizes)
    labels = None if source.labels is None else tf.constant(source.labels.values)
    missing = source.labels.missing if source.labels else frozenset()
    labelled = tf.constant([number not in missing for number in range(len(source))])

    def read(index: tf.Tensor) -> tuple[Sample, str | tf.Tensor]:
        path, size = tf.gather(paths, index), tf.gather(sizes, index)
        image = tf.io.read_file(path)
        length = tf.cast(tf.strings.length(image), tf.int64)
        message = [FILE_CHANGED, path, size, length]
        unchanged = tf.debugging.Assert(tf.logical_or(size < 0, length == size), message)
        with tf.control_dependencies([unchanged]):
            columns = {"image": tf.identity(image)}
        if labels is not None:
            columns["label"] = tf.gather(labels, index)
        if not missing:
            return columns, NO_DEFECT
        unlabelled = tf.strings.join([f"has no label: not in {source.csv}: ", path])
        return columns, tf.where(tf.gather(labelled, index), NO_DEFECT, unlabelled)

    return read


def _record_reader(index: RecordIndex) -> GraphRead:
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
