"""The `images` source: a folder of image files, with labels."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import BeforeValidator, SerializeAsAny
from typing_extensions import Self

from infeed.shared.errors import SampleError, within
from infeed_server.config.model import Finding
from infeed_server.sources.base import (
    Columns,
    IndexedDefinition,
    ProgressCallback,
    Sample,
    Source,
    find_missing,
)
from infeed_server.sources.images.fields import ImageFields, LabelsDefinition
from infeed_server.sources.images.labels import FolderLabels, TableLabels, choose_kind
from infeed_server.sources.images.listing import ImageListing, list_images, require_images
from infeed_server.sources.places import Indices, Provenance
from infeed_server.storage import files
from infeed_server.storage.files import PathString, absolute_path, is_remote, rebase
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import FileStamp, StoredFile

log = logging.getLogger(__name__)

_FOLDERS = "folders"

Identity = Literal["names", "size", "modified"]


class ImagesSource(IndexedDefinition):
    """The image files below a folder, sorted by their path in it.

    Fields: `image`, the encoded bytes, and `label` if there are labels.
    """

    kind: ClassVar[str] = "images"

    images: PathString
    """Folder of the image files."""
    labels: Annotated[
        PathString | SerializeAsAny[LabelsDefinition] | None, BeforeValidator(choose_kind)
    ] = None
    """Source of the field `label`: `folders`, a table of files and labels, a pattern for file
    names, or annotations, see below; without it, `image` is the only field."""
    identity: Identity | None = None
    """What the fingerprint covers of the files, besides names and labels: see below. Default:
    `size`, or in an object store `modified`, which is the etag there."""

    def resolve(self, base: Path) -> Self:
        labels: Any = self.labels
        if isinstance(labels, LabelsDefinition):
            paths = {name: rebase(path, base) for name, path in labels.paths().items()}
            labels = labels.model_copy(update=paths)
        elif not self.numbers_folders:
            labels = rebase(labels, base)
        return self.model_copy(update={"images": rebase(self.images, base), "labels": labels})

    @property
    def _labels(self) -> LabelsDefinition | None:
        if self.numbers_folders:
            return FolderLabels.model_construct(folders=())
        return TableLabels(table=self.labels) if isinstance(self.labels, str) else self.labels

    @property
    def numbers_folders(self) -> bool:
        """Whether the existing folders determine the number of each class."""
        return self.labels == _FOLDERS

    @property
    def is_sorted_by_class(self) -> bool:
        """Whether all samples of a class are adjacent."""
        return self.numbers_folders or isinstance(self.labels, FolderLabels)

    def check(self) -> Iterator[Finding]:
        if not is_remote(self.images):
            root = absolute_path(self.images)
            yield from find_missing(("images",), partial(require_images, root))
        of = self._labels
        for path in of.paths().values() if of else ():
            if is_remote(path) or files.is_folder(path):
                continue
            remedy = f"; give a CSV of file,label, or: {_FOLDERS}" * isinstance(of, TableLabels)
            for place, problem in find_missing(("labels",), partial(files.expand_globs, [path])):
                yield place, f"{problem}{remedy}"

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> ImageReader:  # noqa: ARG002
        """Lists the images and reads their labels. Raises `SourceError`."""
        root = absolute_path(self.images)
        identity = self.identity or ("modified" if is_remote(root) else "size")
        listing = list_images(root)
        with within("labels"):
            labels = self._labels.read(listing) if self._labels else None
        if labels and labels.missing:
            _warn_of_missing(listing, labels)
        return ImageReader(listing, labels, _identity(listing, labels, identity))


def _warn_of_missing(listing: ImageListing, labels: ImageFields) -> None:
    log.warning(
        "%s has nothing for %d of the %d images in %r: %s; they are bad samples (see on_error) "
        "unless remove lists them",
        *(labels.table, len(labels.missing), len(listing.images), listing.root),
        files.abbreviate([listing.images[number].path for number in sorted(labels.missing)]),
    )


def _identity(listing: ImageListing, labels: ImageFields | None, identity: Identity) -> str:
    digest = hashlib.sha256(f"images {identity}\n".encode())
    for number, file in enumerate(listing.images):
        version = b""
        if identity != "names":
            size, time, etag = file.stamp
            version = b"%d" % size if identity == "size" else b"%d %d" % (size, time)
            version += etag.encode() if identity == "modified" else b""
        label = b"" if labels is None or number in labels.missing else labels.digest(number)
        digest.update(b"%b\0%b\0%b\n" % (os.fsencode(file.path), version, label))
    return digest.hexdigest()


_READ_THREADS = 8
"""Threads that read a batch's images: more hide more of a file system's latency, fewer contend less
for Python's lock."""


class ImageReader(Source):
    """Reads images by index, and checks that each file is unchanged since listing. Thread-safe."""

    def __init__(self, listing: ImageListing, labels: ImageFields | None, identity: str) -> None:
        columns = {"image": tf.TensorSpec((), tf.string), **(labels.columns if labels else {})}
        self.labels = labels
        self.shown = {target.field: target for target in labels.shown} if labels else {}
        self.exif = labels.exif if labels else ""
        self.root = listing.root.rstrip("/")
        self.files = ImageFiles(self.root, listing)
        parsed, classes = (labels.parsed, labels.classes) if labels else (True, {})
        super().__init__(self.files, columns, identity, parsed=parsed, classes=classes)

    def read(self, indices: Indices) -> Columns:
        """Returns images and labels. Raises `SampleError` for an image without a CSV row, and
        `SourceError` for one that changed."""
        labels = self.labels
        if labels is None:
            return {"image": self.files.read(indices)}
        for index in indices.tolist() if labels.missing else ():
            if index in labels.missing:
                file = self.provenance(index).file
                problem = f"has no label: {file} is not in {labels.table}"
                raise SampleError(problem, sample=index, file=file, stage="labels")
        return {"image": self.files.read(indices), **labels.read(indices)}

    def parse(self, columns: Sample) -> Sample:
        return self.labels.parse(columns) if self.labels else columns

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.labels.known_fields() if self.labels else {}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        return self.labels.whole_field(name) if self.labels else None

    def close(self) -> None:
        if self.labels:
            self.labels.close()
        super().close()


class ImageFiles(Sequence[StoredFile]):
    """The images of a listing, kept in arrays because there may be millions."""

    def __init__(self, root: str, listing: ImageListing) -> None:
        prefix = os.fsencode(root) + b"/"
        self.paths = np.empty(len(listing.images), object)
        self.paths[:] = [prefix + os.fsencode(file.path) for file in listing.images]
        self.sizes = np.array([file.stamp.size for file in listing.images], np.int64)
        self._times = np.array([file.stamp.mtime_ns for file in listing.images], np.int64)
        etags = [file.stamp.etag for file in listing.images]
        self._etags = etags if any(etags) else None
        digest = hashlib.sha256(self.sizes.tobytes() + self._times.tobytes())
        digest.update("\n".join(self._etags or ()).encode())
        self.stamp = digest.hexdigest()
        self._ranges = RangeReader(self, threads=_READ_THREADS, keep_open=False)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        etag = self._etags[index] if self._etags else ""
        stamp = FileStamp(int(self.sizes[index]), int(self._times[index]), etag)
        return StoredFile(os.fsdecode(self.paths[index]), stamp)

    def provenance(self, index: int) -> Provenance:
        return Provenance(os.fsdecode(self.paths[index]))

    def samples_in(self, end: str) -> Iterator[range]:
        name = b"/" + os.fsencode(end)
        for index, path in enumerate(self.paths):
            if path.endswith(name):
                yield range(index, index + 1)

    def read(self, indices: Indices) -> npt.NDArray[np.object_]:
        """Returns the content of files. Raises `SourceError` for one that changed."""
        sizes = self.sizes[indices]
        return self._ranges.read(indices, np.zeros_like(sizes), sizes)

    def close(self) -> None:
        """Ends the reading threads; a read in progress completes, later ones fail."""
        self._ranges.close()
