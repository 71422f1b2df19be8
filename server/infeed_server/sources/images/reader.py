"""The reader of image files, locally and in a graph."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.base import (
    NO_DEFECT,
    Columns,
    GraphRead,
    GraphReader,
    Indices,
    Provenance,
    Sample,
)
from infeed_server.sources.file_handles import FileHandle
from infeed_server.sources.files import FileStamp, is_remote, read_remote
from infeed_server.sources.images.labels import Labels
from infeed_server.sources.images.listing import ImageListing
from infeed_server.sources.storage_faults import retry_faults

FILE_CHANGED = "changed since it was listed:"
"""In the error of a graph: TensorFlow has no code for it."""

_READ_THREADS = 8
"""Threads that read the images of a batch: more hide more of a file system's latency, and fewer
wait less for Python's lock."""


class ImageReader:
    """Reads images by index, and checks that each file is as it was listed. Thread-safe."""

    parsed = True

    def __init__(
        self, listing: ImageListing, labels: Labels | None, csv: str | None, identity: str
    ) -> None:
        self.identity = identity
        self._labels = labels
        self._csv = csv
        self._root = listing.root.rstrip("/")
        root = os.fsencode(self._root)
        self._paths = np.empty(len(listing.images), object)
        self._paths[:] = [root + b"/" + os.fsencode(file.path) for file in listing.images]
        self._sizes = np.array([file.size for file in listing.images], np.int64)
        self._mtimes_ns = np.array([file.mtime_ns for file in listing.images], np.int64)
        self._pool = ThreadPoolExecutor(_READ_THREADS, "infeed-images")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each label, if the labels are taken from folders or file names."""
        return self._labels.class_names if self._labels else ()

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        specs = {"image": tf.TensorSpec((), tf.string)}
        if self._labels is not None:
            strings = self._labels.values.dtype == object
            specs["label"] = tf.TensorSpec((), tf.string if strings else tf.int64)
        return specs

    def __len__(self) -> int:
        return len(self._paths)

    def provenance(self, index: int) -> Provenance:
        return Provenance(os.fsdecode(self._paths[index]))

    def read(self, indices: Indices) -> Columns:
        """Returns images and labels.

        Raises `SampleError` for the first image without a CSV row, and `SourceError` for a file
        that cannot be read, or changed since it was listed.
        """
        if self._labels is not None:
            for index in indices.tolist() if self._labels.missing else ():
                if index in self._labels.missing:
                    raise self._unlabelled(index)
        columns: Columns = {"image": self._read_images(indices)}
        if self._labels is not None:
            columns["label"] = self._labels.values[indices]
        return columns

    def parse(self, columns: Sample) -> Sample:
        return columns

    def close(self) -> None:
        """Ends the reading threads; a read in progress completes, later ones fail."""
        self._pool.shutdown(wait=False)

    def _read_images(self, indices: Indices) -> npt.NDArray[np.object_]:
        images = np.empty(len(indices), object)
        numbers = indices.tolist()

        def read_some(first: int) -> None:
            for slot in range(first, len(numbers), _READ_THREADS):
                index = numbers[slot]
                path = os.fsdecode(self._paths[index])
                images[slot] = retry_faults(partial(self._read_image, index, path), path)

        try:
            reads = self._pool.map(read_some, range(min(_READ_THREADS, len(numbers))))
        except RuntimeError as error:
            raise SourceError(f"{self._root}: the source is closed", file=self._root) from error
        # The list raises the first error.
        list(reads)
        return images

    def _read_image(self, index: int, path: str) -> bytes:
        """Reads a file. Raises `OSError` or `tf.errors.OpError` for a storage fault."""
        listed = FileStamp(int(self._sizes[index]), int(self._mtimes_ns[index]))
        if is_remote(path):
            content = read_remote(path)
            # A stamp would take another request.
            stamp = listed if listed.size < 0 else listed._replace(size=len(content))
        else:
            content, stamp = _read_local(path, listed.size)
        if stamp != listed:
            raise SourceError(
                f"{path} changed since the server listed it: it had {listed.size} bytes and has "
                f"{stamp.size}, modified at another time; restart the server",
                file=path,
                fault="changed",
            )
        return content

    def graph_reader(self) -> GraphReader:
        strings = [self._paths]
        size = len(self) * (1 + self._sizes.itemsize)
        if self._labels is not None:
            size += self._labels.values.nbytes
            strings += [self._labels.values] if self._labels.values.dtype == object else []
        size += sum(len(text) for texts in strings for text in texts)
        return GraphReader(size, (self._root,), self._build_graph_reader)

    def _build_graph_reader(self) -> GraphRead:
        """Returns the equivalent of `read` over constants, without the times of files."""
        paths, sizes = tf.constant(self._paths), tf.constant(self._sizes)
        labels = None if self._labels is None else tf.constant(self._labels.values)
        missing = self._labels.missing if self._labels else frozenset()
        labelled = tf.constant([number not in missing for number in range(len(self))])

        def read(index: tf.Tensor) -> tuple[Sample, tf.Tensor]:
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
            unlabelled = tf.strings.join([f"has no label: not in {self._csv}: ", path])
            return columns, tf.where(tf.gather(labelled, index), NO_DEFECT, unlabelled)

        return read

    def _unlabelled(self, index: int) -> SampleError:
        file = self.provenance(index).file
        return SampleError(
            f"sample {index} has no label: {file} is not in {self._csv}",
            sample_id=index,
            file=file,
            stage="labels",
        )


def _read_local(path: str, size: int) -> tuple[bytes, FileStamp]:
    """Returns the first `size` bytes of a file, and its stamp after they were read.

    So they are of the stamp's version: a change before or during the read changes the stamp.
    """
    handle = FileHandle(path)
    try:
        content = handle.read(0, size)
        stamp = handle.stamp()
    finally:
        handle.close()
    assert stamp is not None
    if len(content) < size <= stamp.size:
        raise OSError(errno.EIO, f"only {len(content)} of its {size} bytes are read")
    return content, stamp
