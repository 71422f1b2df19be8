"""The `images` source: a folder of image files, with labels."""

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
from infeed_server.sources.base import (
    Columns,
    GraphReader,
    IndexedDefinition,
    Indices,
    ProgressCallback,
    Provenance,
    Sample,
)
from infeed_server.sources.files import PathString, absolute_path, rebase
from infeed_server.sources.images.labels import (
    FileNameLabels,
    Labels,
    labels_from_csv,
    labels_from_file_names,
    labels_from_folders,
)
from infeed_server.sources.images.listing import ImageListing, list_images

_FOLDERS = "folders"


class ImagesSource(IndexedDefinition):
    """The .jpg, .jpeg and .png files below a folder, sorted by their path in it.

    Fields: `image`, the encoded bytes, and `label` if there are labels.
    """

    kind: ClassVar[str] = "images"

    images: PathString
    """Directory of the files."""
    labels: PathString | FileNameLabels | None = None
    """Source of the field `label`: `folders`, a CSV file, or a pattern of file names, see below;
    without it, `image` is the only field."""

    def resolve(self, base: Path) -> Self:
        labels = self.labels
        if isinstance(labels, str) and labels != _FOLDERS:
            labels = rebase(labels, base)
        return self.model_copy(update={"images": rebase(self.images, base), "labels": labels})

    def open(self, progress: ProgressCallback | None = None) -> ImageReader:  # noqa: ARG002 - listing has no total
        """Lists the images and reads their labels. Raises `SourceError`."""
        listing = list_images(absolute_path(self.images))
        if self.labels is None:
            return ImageReader(listing, None, None)
        if self.labels == _FOLDERS:
            return ImageReader(listing, labels_from_folders(listing), None)
        if isinstance(self.labels, FileNameLabels):
            return ImageReader(
                listing, labels_from_file_names(self.labels.file_name, listing), None
            )
        csv = absolute_path(self.labels)
        return ImageReader(listing, labels_from_csv(csv, listing), csv)


class ImageReader:
    """Reads images by index. `read` returns paths; the graph reads the files in parallel."""

    parsed = False

    def __init__(self, listing: ImageListing, labels: Labels | None, csv: str | None) -> None:
        self._labels = labels
        self._csv = csv
        self._root = listing.root.rstrip("/")
        root = os.fsencode(self._root)
        self._paths = np.empty(len(listing.images), object)
        digest = hashlib.sha256(b"images\n")
        for number, file in enumerate(listing.images):
            name = os.fsencode(file.path)
            self._paths[number] = root + b"/" + name
            label = b"" if labels is None or number in labels.missing else labels.values[number]
            label = label if isinstance(label, bytes) else str(label).encode()
            digest.update(b"%b\0%d\0%b\n" % (name, file.size, label))
        self.identity = digest.hexdigest()

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each label, if the labels are taken from folders or file names."""
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
        """Returns paths and labels. Raises `SampleError` for the first image without a CSV row."""
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

    def graph_reader(self) -> GraphReader:
        strings = [self._paths]
        size = len(self)
        if self._labels is not None:
            size += self._labels.values.nbytes
            strings += [self._labels.values] if self._labels.values.dtype == object else []
        size += sum(len(text) for texts in strings for text in texts)
        return GraphReader(size, (self._root,), self._build_graph_reader)

    def _build_graph_reader(self) -> Callable[[tf.Tensor], Sample]:
        """Returns the equivalent of `read` over constants."""
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
            message = [f"has no label: not in {self._csv}:", columns["path"]]
            has_label = tf.debugging.Assert(tf.gather(labelled, index), message)
            with tf.control_dependencies([has_label]):
                return {name: tf.identity(value) for name, value in columns.items()}

        return read

    def _unlabelled(self, index: int) -> SampleError:
        file = self.provenance(index).file
        return SampleError(
            f"sample {index} has no label: {file} is not in {self._csv}", sample_id=index, file=file
        )
