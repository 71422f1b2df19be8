"""The `images` source: a folder of image files, with labels."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Literal

from infeed.shared.errors import SourceError
from infeed_server.config.model import Finding
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, find_missing
from infeed_server.sources.files import (
    PathString,
    abbreviate,
    absolute_path,
    expand_globs,
    is_remote,
    read_bytes,
    remembered,
)
from infeed_server.sources.images.labels import (
    FileNameLabels,
    Labels,
    labels_from_csv,
    labels_from_file_names,
    labels_from_folders,
)
from infeed_server.sources.images.listing import (
    ImageFile,
    ImageListing,
    list_images,
    require_images,
)
from infeed_server.sources.images.reader import ImageReader

log = logging.getLogger(__name__)

_FOLDERS = "folders"

Identity = Literal["names", "size", "modified", "content"]

_HASH_THREADS = 8
"""Threads that read files to hash them: more hide more of a file system's latency."""
_HASHED_TOGETHER = 1024
"""Files given to the threads at a time: each has a future in memory."""


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
    missing_labels: Literal["warn", "error"] = "warn"
    """What happens at start if the CSV file has no row for some images: a warning with their number
    and the first names, or an error. Each of them is a bad sample."""
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

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> ImageReader:
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
            self._report_missing(labels, csv, listing)
        return ImageReader(listing, labels, csv, _identity(listing, labels, identity, progress))

    def _report_missing(self, labels: Labels, csv: str, listing: ImageListing) -> None:
        """Logs the images without a label, or raises `SourceError` for them."""
        if not labels.missing:
            return
        names = [listing.images[number].path for number in sorted(labels.missing)]
        problem = (
            f"{csv} has no row for {len(names)} of the {len(listing.images)} images in "
            f"{listing.root!r}: {abbreviate(names)}"
        )
        if self.missing_labels == "error":
            raise SourceError(
                f"{problem}; add the rows, or leave out missing_labels: error, which makes these "
                "images bad samples",
                file=csv,
            )
        log.warning("%s; each is a bad sample, see on_error", problem)


def _identity(
    listing: ImageListing,
    labels: Labels | None,
    identity: Identity,
    progress: ProgressCallback | None = None,
) -> str:
    """Returns the hash. With `content`, reads every file, unless all stamps are as remembered."""
    digest = hashlib.sha256(f"images {identity}\n".encode())
    for number, file in enumerate(listing.images):
        label = b"" if labels is None or number in labels.missing else labels.values[number]
        label = label if isinstance(label, bytes) else str(label).encode()
        digest.update(b"%b\0%b\0%b\n" % (os.fsencode(file.path), _version(file, identity), label))
    if identity == "content":
        compute = partial(_hash_files, listing, progress)
        if is_remote(listing.root):
            content = compute()
        else:
            stamps = hashlib.sha256()
            for file in listing.images:
                path, version = os.fsencode(file.path), _version(file, "modified")
                stamps.update(b"%b\0%b\n" % (path, version))
            newest = max(file.mtime_ns for file in listing.images)
            content = remembered(f"images {listing.root}", stamps.hexdigest(), newest, compute)
        digest.update(content.encode())
    return digest.hexdigest()


def _version(file: ImageFile, identity: Identity) -> bytes:
    if identity == "size":
        return b"%d" % file.size
    return b"%d %d" % (file.size, file.mtime_ns) if identity == "modified" else b""


def _hash_files(listing: ImageListing, progress: ProgressCallback | None) -> str:
    root = listing.root.rstrip("/")
    total = sum(max(file.size, 0) for file in listing.images)
    done = 0

    def hash_file(file: ImageFile) -> tuple[int, bytes]:
        content = read_bytes(f"{root}/{file.path}")
        return len(content), hashlib.sha256(content).digest()

    digest = hashlib.sha256()
    with ThreadPoolExecutor(_HASH_THREADS, "infeed-hash") as pool:
        for begin in range(0, len(listing.images), _HASHED_TOGETHER):
            files = listing.images[begin : begin + _HASHED_TOGETHER]
            for size, content_hash in pool.map(hash_file, files):
                digest.update(content_hash)
                done += size
            if progress is not None:
                progress(min(done, total), total)
    return digest.hexdigest()
