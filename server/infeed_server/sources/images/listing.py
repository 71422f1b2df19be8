"""Image files below a folder, in an order that is the same on every machine."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from stat import S_ISREG
from typing import NamedTuple

import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed_server.sources.files import (
    FileStamp,
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
    no files, or links to none, are left out, and counted in a warning."""
    images, folders, dangling, base = [], [], [], root.rstrip("/") + "/"
    try:
        for folder, names in _walk(root):
            prefix = f"{folder.rstrip('/')}/"[len(base) :]
            folders += [prefix.partition("/")[0]] if prefix.count("/") == 1 else []
            for path in (prefix + name for name in names if _is_image(name)):
                if is_remote(root):
                    images.append(ImageFile(path, *(stat_file(base + path) if stat_remote else ())))
                elif stamp := _regular_stamp(base + path):
                    images.append(ImageFile(path, *stamp))
                else:
                    dangling.append(path)
    except file_errors() as error:
        path = getattr(error, "filename", None) or root
        raise SourceError(f"cannot list {path!r}: {error_text(error)}", file=path) from error
    if dangling:
        log.warning(
            "%s: %d images are no files, or links to none, and are left out, such as %s",
            *(root, len(dangling), min(dangling)),
        )
    if not images:
        raise _without_image(root)
    return ImageListing(root, tuple(sorted(images)), tuple(sorted(folders)))


def require_images(root: str) -> None:
    """Raises `SourceError` unless a folder contains an image; stops at the first one."""
    if not any(_is_image(name) for _, names in _walk(root) for name in names):
        raise _without_image(root)


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def _without_image(root: str) -> SourceError:
    endings = ", ".join(EXTENSIONS)
    return SourceError(f"no image in {root!r}: none of its files ends with {endings}", file=root)


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yields folders and the names of their files. Raises `SourceError` for a link to what contains
    it, and errors of files."""
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
                raise SourceError(f"{folder!r} is a link to a folder that contains it", file=folder)
            above[folder] = parents | {real}
        # Depending on the file system, gfile returns folders with a slash at the end or without.
        # Both walks descend into the folders that are left in the list.
        folders[:] = [name.rstrip("/") for name in folders if not name.startswith(".")]
        yield folder, names


def _fail(error: OSError) -> None:
    raise error


def _regular_stamp(path: str) -> FileStamp | None:
    """Returns the stamp of a local file; None for a link to none, and for what is no file."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if error.errno not in _DANGLING:
            raise
        return None
    return FileStamp.of(stat) if S_ISREG(stat.st_mode) else None  # a pipe's read would never end
