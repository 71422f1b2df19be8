"""Graph readers: the samples of a source, read by TensorFlow operations alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed.shared.spec import Array
from infeed_formats.arrays.source import ArrayReader, to_wire
from infeed_formats.tfrecord.framing import FRAME_BYTES
from infeed_formats.tfrecord.reader import RECORD_COLUMN, TFRecordReader
from infeed_server.sources.base import Sample, Source
from infeed_server.sources.images.labels import Labels
from infeed_server.sources.images.source import ImageReader

FILE_CHANGED = "changed since it was listed:"
"""Text that marks a graph's error, as TensorFlow has no code for it."""

Read: TypeAlias = "tuple[Sample, str | tf.Tensor]"
"""A sample's columns and its defect, an empty text unless the sample is bad. A storage fault is an
error of the graph instead."""

GraphRead = Callable[[tf.Tensor], Read]
"""A function that reads the sample of an index, an int64 scalar."""

NO_DEFECT = ""


@dataclass(frozen=True)
class GraphReader:
    """A reader of a source that consists of TensorFlow ops, for graphs that run without infeed.

    `read` takes the constants as tensors, and an index. `paths` identify the location of the data.
    `check` raises `SourceError` if the constants may have changed.
    """

    constants: Mapping[str, Array]
    read: Callable[[Sample, tf.Tensor], Read]
    paths: tuple[str, ...] = ()
    check: Callable[[], None] = lambda: None

    @property
    def size_bytes(self) -> int:
        """An upper bound on the bytes of the constants when they are sent."""
        return sum(
            sum(map(len, array.flat)) if array.dtype == object else array.nbytes
            for array in self.constants.values()
        )

    def build(self) -> GraphRead:
        """Makes the constants and returns the function that reads a sample."""
        self.check()
        tensors = {name: tf.constant(to_wire(array)) for name, array in self.constants.items()}
        self.check()
        return partial(self.read, tensors)


def graph_reader(source: Source) -> GraphReader:
    """Returns the reader of a source in files or arrays; this is cheap, only `build` makes
    constants. Raises `ConfigError` for a source that only Python can read."""
    if isinstance(source, TFRecordReader):
        index = source.index
        paths = [file.path for file in index.files]
        constants = {
            "paths": np.array(paths, object),
            "first": index.first,
            "offsets": index.offsets.view(np.int64),
            "lengths": index.lengths,
        }
        constants |= {"damaged": index.damaged} if len(index.damaged) else {}
        return GraphReader(constants, _read_record, tuple(paths))
    if isinstance(source, ImageReader):
        constants = {"paths": source.files.paths, "sizes": source.files.sizes}
        if source.labels:
            if not isinstance(source.labels, Labels):
                problem = "no TensorFlow operation reads its annotations"
                raise ConfigError(f"images: {problem}; pack it into TFRecords")
            constants["labels"] = source.labels.values
            if missing := source.labels.missing:
                constants["labelled"] = ~np.isin(np.arange(len(source)), [*missing])
        table = source.labels.table if source.labels else ""
        return GraphReader(constants, partial(_read_image, table), (source.root,))
    if not isinstance(source, ArrayReader):
        raise ConfigError(f"{type(source).__name__}: no TensorFlow operation reads it")
    arrays = {name: stored.array for name, stored in source.stored.items()}
    return GraphReader(arrays, _read_row, check=source.check_files)


def _read_row(arrays: Sample, index: tf.Tensor) -> Read:
    return {name: tf.gather(rows, index) for name, rows in arrays.items()}, NO_DEFECT


def _read_image(csv: str, constants: Sample, index: tf.Tensor) -> Read:
    """Reads a sample like the source, but without checking the file's time."""
    path, size = tf.gather(constants["paths"], index), tf.gather(constants["sizes"], index)
    image = tf.io.read_file(path)
    length = tf.cast(tf.strings.length(image), tf.int64)
    message = [FILE_CHANGED, path, size, length]
    unchanged = tf.debugging.Assert(length == size, message)
    with tf.control_dependencies([unchanged]):
        columns = {"image": tf.identity(image)}
    if "labels" in constants:
        columns["label"] = tf.gather(constants["labels"], index)
    if "labelled" not in constants:
        return columns, NO_DEFECT
    unlabelled = tf.strings.join([f"has no label: not in {csv}: ", path])
    return columns, tf.where(tf.gather(constants["labelled"], index), NO_DEFECT, unlabelled)


def _read_record(index: Sample, number: tf.Tensor) -> Read:
    """Reads a record by its number.

    Records marked as damaged in the index have a defect. The graph fails for any other record that
    it cannot read, as storage or this copy of the file is then at fault.
    """
    file = tf.searchsorted(index["first"], number[tf.newaxis], side="right")[0] - 1
    path = tf.gather(index["paths"], file)
    offset = tf.gather(index["offsets"], number)

    def read() -> tf.Tensor:
        return _verified(path, offset, tf.cast(tf.gather(index["lengths"], number), tf.int64))

    if "damaged" not in index:
        return {RECORD_COLUMN: read()}, NO_DEFECT
    is_damaged = tf.reduce_any(index["damaged"] == number)
    record = tf.cond(is_damaged, lambda: tf.constant(b""), read)
    defect = tf.strings.join([path, ": damaged record at byte ", tf.strings.as_string(offset)])
    return {RECORD_COLUMN: record}, tf.where(is_damaged, defect, NO_DEFECT)


def _verified(path: tf.Tensor, offset: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns a verified record. Fails if it is damaged or storage fails."""
    one_string = {"output_types": [tf.string], "output_shapes": [()]}
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[tf.newaxis],
        compression_type="",
        # The buffer holds only the record's frame, so none of the next record is read.
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
