"""The `images` source: a folder of image files, with labels."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from typing_extensions import Self

from infeed_server.sources.base import IndexedDefinition, ProgressCallback
from infeed_server.sources.files import PathString, absolute_path, is_remote, rebase
from infeed_server.sources.images.identity import Identity, images_identity
from infeed_server.sources.images.labels import (
    FileNameLabels,
    labels_from_csv,
    labels_from_file_names,
    labels_from_folders,
)
from infeed_server.sources.images.listing import list_images
from infeed_server.sources.images.reader import ImageReader

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
    identity: Identity | None = None
    """What of the files is part of the fingerprint, besides names and labels: see below; the
    default is `size`, for a remote directory `names`."""

    def resolve(self, base: Path) -> Self:
        labels = self.labels
        if isinstance(labels, str) and labels != _FOLDERS:
            labels = rebase(labels, base)
        return self.model_copy(update={"images": rebase(self.images, base), "labels": labels})

    def open(self, progress: ProgressCallback | None = None) -> ImageReader:
        """Lists the images and reads their labels. Raises `SourceError`."""
        root = absolute_path(self.images)
        identity = self.identity or ("names" if is_remote(root) else "size")
        listing = list_images(root, stat_remote=identity in ("size", "modified"))
        csv = None
        labels = None
        if isinstance(self.labels, FileNameLabels):
            labels = labels_from_file_names(self.labels.file_name, listing)
        elif self.labels == _FOLDERS:
            labels = labels_from_folders(listing)
        elif self.labels is not None:
            csv = absolute_path(self.labels)
            labels = labels_from_csv(csv, listing)
        return ImageReader(
            listing, labels, csv, images_identity(listing, labels, identity, progress)
        )
