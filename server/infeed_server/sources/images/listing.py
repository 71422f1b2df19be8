"""Image files below a folder, in an order that is the same on every machine."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from stat import S_ISREG
from typing import NamedTuple

import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed_server.sources.files import (
    describe_nearest_folder,
    file_errors,
    is_folder,
    is_remote,
    stat_file,
)
from infeed_server.sources.storage_faults import error_text

log = logging.getLogger(__name__)

EXTENSIONS = (".jpg", ".jpeg", ".png")
"""Endings of image file names, compared without case."""

_DANGLING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a link to no file: to a name that is not there, below a file, or back to itself."""


class ImageFile(NamedTuple):
    """An image file: its path below the folder, separated by `/`, and its stamp; -1: unknown."""

    path: str
    size: int = -1
    mtime_ns: int = -1


@dataclass(frozen=True)
class ImageListing:
    """The images below a folder, sorted by path, and the names of its direct subfolders."""

    root: str
    images: tuple[ImageFile, ...]
    folders: tuple[str, ...]


def list_images(root: str, *, stat_remote: bool = False) -> ImageListing:
    """Lists all images below a folder, except names that begin with a dot. Raises `SourceError`.

    Remote files have stamps only with `stat_remote`: it takes a request for each. Images that are
    no files, or links to none, are left out, and counted in a warning.
    """
    walk = _Walk(root)
    images = tuple(sorted(walk.images(stat_remote=stat_remote)))
    if walk.dangling:
        log.warning(
            "%s: %d images are no files, or links to none, and are left out, such as %s",
            *(root, len(walk.dangling), min(walk.dangling)),
        )
    if not images:
        raise walk.without_image()
    return ImageListing(root, images, tuple(sorted(walk.folders)))


def require_images(root: str) -> None:
    """Raises `SourceError` unless a folder contains an image; stops at the first one."""
    walk = _Walk(root)
    if next(walk.images(), None) is None:
        raise walk.without_image()


@dataclass
class _Walk:
    """A walk through the files below a folder, and what it found besides images."""

    root: str
    folders: list[str] = field(default_factory=list)
    """The direct subfolders."""
    dangling: list[str] = field(default_factory=list)
    """Images that are no files, or links to none."""
    others: int = 0

    def images(self, *, stat_remote: bool = False) -> Iterator[ImageFile]:
        """Yields the images. Raises `SourceError` for a folder that cannot be listed."""
        base = self.root.rstrip("/") + "/"
        try:
            for path in self._files(base):
                if not path.lower().endswith(EXTENSIONS):
                    self.others += 1
                elif is_remote(self.root):
                    yield ImageFile(path, *(stat_file(base + path) if stat_remote else ()))
                elif (stat := _stat_regular(base + path)) is None:
                    self.dangling.append(path)
                else:
                    yield ImageFile(path, stat.st_size, stat.st_mtime_ns)
        except file_errors() as error:
            path = getattr(error, "filename", None) or self.root
            raise SourceError(f"cannot list {path!r}: {error_text(error)}", file=path) from error

    def without_image(self) -> SourceError:
        others = self.others + len(self.dangling)
        endings = ", ".join(EXTENSIONS)
        text = f"no image in {self.root!r}: none of its {others} files ends with {endings}"
        return SourceError(text, file=self.root)

    def _files(self, base: str) -> Iterator[str]:
        """Yields the paths of the files. Raises `SourceError` for a link to what contains it."""
        root = self.root
        if not is_folder(root):
            raise SourceError(f"no folder {root!r}; {describe_nearest_folder(root)}", file=root)
        remote = is_remote(root)
        walk = tf.io.gfile.walk(root) if remote else os.walk(root, onerror=_fail, followlinks=True)
        above: dict[str, frozenset[str]] = {}
        for folder, folders, names in walk:
            if not remote:
                real = os.path.realpath(folder)
                parents = above.get(os.path.dirname(folder), frozenset())  # noqa: PTH120
                if real in parents:
                    problem = "is a link to a folder that contains it"
                    raise SourceError(f"{folder!r} {problem}", file=folder)
                above[folder] = parents | {real}
            # Depending on the file system, gfile returns folders with a slash at the end or
            # without. Both walks descend into the folders that are left in the list.
            folders[:] = [name.rstrip("/") for name in folders if not name.startswith(".")]
            prefix = f"{folder.rstrip('/')}/"[len(base) :]
            if not prefix:
                self.folders += folders
            yield from (prefix + name for name in names if not name.startswith("."))


def _fail(error: OSError) -> None:
    raise error


def _stat_regular(path: str) -> os.stat_result | None:
    """Returns the stat of a local file; None for a link to none, and for what is no file."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if error.errno not in _DANGLING:
            raise
        return None
    return stat if S_ISREG(stat.st_mode) else None  # of a pipe, a read would never end
