"""The `images` source: a folder of image files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from infeed.errors import SampleError
from infeed_server.sources.base import Columns, Indices, InGraph, Provenance, Sample
from infeed_server.sources.definition import IndexedDefinition, Progress
from infeed_server.sources.files import PathText, absolute, rebase
from infeed_server.sources.labels import (
    FileNameLabels,
    Labels,
    from_csv,
    from_file_names,
    from_folders,
)
from infeed_server.sources.listing import Listing, list_images

_FOLDERS = "folders"


class ImagesSource(IndexedDefinition):
    """The .jpg, .jpeg and .png files below a folder, sorted by their path in it.

    `images`: the folder. `labels`: `folders` for the index of the subfolder, or the path of a CSV
    of file,label, or `file_name` with a pattern, or none. Fields: `image`, the encoded bytes, and
    with labels `label`.
    """

    kind: ClassVar[str] = "images"

    images: PathText
    labels: PathText | FileNameLabels | None = None

    def resolve(self, base: Path) -> Self:
        labels = self.labels
        if isinstance(labels, str) and labels != _FOLDERS:
            labels = rebase(labels, base)
        return self.model_copy(update={"images": rebase(self.images, base), "labels": labels})

    def open(self, progress: Progress | None = None) -> Images:  # noqa: ARG002 - listing has no total
        """The opened source. Raises `SourceError`."""
        listing = list_images(absolute(self.images))
        if self.labels is None:
            return Images(listing, None, None)
        if self.labels == _FOLDERS:
            return Images(listing, from_folders(listing), None)
        if isinstance(self.labels, FileNameLabels):
            return Images(listing, from_file_names(self.labels.file_name, listing), None)
        csv = absolute(self.labels)
        return Images(listing, from_csv(csv, listing), csv)


class Images:
    """Image files read by index. `read` gives paths; the graph reads the files in parallel."""

    parsed = False

    def __init__(self, listing: Listing, labels: Labels | None, csv: str | None) -> None:
        self._labels = labels
        self._csv = csv
        self._root = listing.root.rstrip("/")
        root = os.fsencode(self._root)
        self._paths = np.empty(len(listing.images), object)
        digest = hashlib.sha256(b"images\n")
        for number, entry in enumerate(listing.images):
            name = os.fsencode(entry.path)
            self._paths[number] = root + b"/" + name
            label = b"" if labels is None or number in labels.missing else labels.values[number]
            label = label if isinstance(label, bytes) else str(label).encode()
            digest.update(b"%b\0%d\0%b\n" % (name, entry.size, label))
        self.identity = digest.hexdigest()

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each label, when labels come from folders or file names."""
        return self._labels.class_names if self._labels else ()

    @property
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        specs = {"path": tf.TensorSpec((), tf.string)}
        if self._labels is not None:
            strings = self._labels.values.dtype == object
            specs["label"] = tf.TensorSpec((), tf.string if strings else tf.int64)
        return specs

    def __len__(self) -> int:
        return len(self._paths)

    def provenance(self, index: int) -> Provenance:
        return Provenance(os.fsdecode(self._paths[index]))

    def read(self, indices: Indices) -> Columns:
        """Paths and labels. Raises `SampleError` for the first image that the CSV leaves out."""
        columns: Columns = {"path": self._paths[indices]}
        if self._labels is not None:
            for index in indices.tolist() if self._labels.missing else ():
                if index in self._labels.missing:
                    raise self._unlabelled(index)
            columns["label"] = self._labels.values[indices]
        return columns

    def parse(self, columns: Sample) -> Sample:
        sample = {"image": tf.io.read_file(columns["path"])}
        if "label" in columns:
            sample["label"] = columns["label"]
        return sample

    def in_graph(self) -> InGraph:
        strings = [self._paths]
        size = len(self)
        if self._labels is not None:
            size += self._labels.values.nbytes
            strings += [self._labels.values] if self._labels.values.dtype == object else []
        size += sum(len(text) for texts in strings for text in texts)
        return InGraph(size, (self._root,), self._reader)

    def _reader(self) -> Callable[[tf.Tensor], Sample]:
        """Gathers what `read` does from constants."""
        constants = {"path": tf.constant(self._paths)}
        missing: frozenset[int] = frozenset()
        if self._labels is not None:
            constants["label"] = tf.constant(self._labels.values)
            missing = self._labels.missing
        labelled = tf.constant([number not in missing for number in range(len(self))])

        def read(index: tf.Tensor) -> Sample:
            columns = {name: tf.gather(rows, index) for name, rows in constants.items()}
            if not missing:
                return columns
            told = [f"has no label: not in {self._csv}:", columns["path"]]
            with tf.control_dependencies([tf.debugging.Assert(tf.gather(labelled, index), told)]):
                return {name: tf.identity(value) for name, value in columns.items()}

        return read

    def _unlabelled(self, index: int) -> SampleError:
        file = self.provenance(index).file
        return SampleError(
            f"sample {index} has no label: {file} is not in {self._csv}",
            sample_id=index,
            file=file,
        )
