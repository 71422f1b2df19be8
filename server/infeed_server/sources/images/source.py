"""The `images` source: a folder of image files, with labels."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal

from infeed_server.config.model import Finding
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, find_missing
from infeed_server.sources.files import (
    PathString,
    abbreviate,
    absolute_path,
    expand_globs,
    is_remote,
)
from infeed_server.sources.images.labels import (
    FileNameLabels,
    Labels,
    labels_from_csv,
    labels_from_file_names,
    labels_from_folders,
)
from infeed_server.sources.images.listing import (
    ImageListing,
    list_images,
    require_images,
)
from infeed_server.sources.images.reader import ImageReader

log = logging.getLogger(__name__)

_FOLDERS = "folders"

Identity = Literal["names", "size", "modified"]


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

    def paths(self) -> dict[str, Any]:
        labels = {"labels": self.labels} if self.labels != _FOLDERS else {}
        return {"images": self.images, **labels}

    def check(self) -> Iterator[Finding]:
        if not is_remote(self.images):
            root = absolute_path(self.images)
            yield from find_missing(("images",), partial(require_images, root))
        labels = self.labels
        if isinstance(labels, str) and labels != _FOLDERS and not is_remote(labels):
            for path, problem in find_missing(("labels",), partial(expand_globs, [labels])):
                yield path, f"{problem}; give a CSV of file,label, or: {_FOLDERS}"

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> ImageReader:  # noqa: ARG002
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
            if labels.missing:
                names = [listing.images[number].path for number in sorted(labels.missing)]
                log.warning(
                    "%s has no row for %d of the %d images in %r: %s; each is a bad sample, see "
                    "on_error",
                    *(csv, len(names), len(listing.images), listing.root, abbreviate(names)),
                )
        return ImageReader(listing, labels, csv, _identity(listing, labels, identity))


def _identity(listing: ImageListing, labels: Labels | None, identity: Identity) -> str:
    digest = hashlib.sha256(f"images {identity}\n".encode())
    for number, file in enumerate(listing.images):
        version = b""
        if identity != "names":
            version = b"%d" % file.size if identity == "size" else b"%d %d" % file[1:]
        label = b"" if labels is None or number in labels.missing else labels.values[number]
        label = label if isinstance(label, bytes) else str(label).encode()
        digest.update(b"%b\0%b\0%b\n" % (os.fsencode(file.path), version, label))
    return digest.hexdigest()
