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
    """Lists all images below a folder, recursively. Names that begin with a dot are skipped.

    Listing a remote folder takes one request per folder; its files have stamps only with
    `stat_remote`, which takes one per file. Images that are no files, or links to none, are left
    out, and counted in a warning. Raises `SourceError` when the folder does not exist, cannot be
    read or contains no image.
    """
    _require_folder(root)
    folders: list[str] = []
    images: list[ImageFile] = []
    dangling: list[str] = []
    others = 0
    try:
        walk = _walk_remote(root, folders, stat_remote) if is_remote(root) else None
        for file in walk or _walk_local(root, folders, dangling):
            if file is not None:
                images.append(file)
            else:
                others += 1
    except file_errors() as error:
        raise _unlistable(root, error) from error
    if dangling:
        log.warning(
            "%s: %d images are no files, or links to none, and are left out, such as %s",
            root,
            len(dangling),
            min(dangling),
        )
    if not images:
        raise _without_image(root, others)
    images.sort()
    return ImageListing(root, tuple(images), tuple(sorted(folders)))


def require_images(root: str) -> None:
    """Raises `SourceError` unless a local folder contains an image; stops at the first one."""
    _require_folder(root)
    others = 0
    try:
        for file in _walk_local(root, [], []):
            if file is not None:
                return
            others += 1
    except OSError as error:
        raise _unlistable(root, error) from error
    raise _without_image(root, others)


def _require_folder(root: str) -> None:
    if not is_folder(root):
        raise SourceError(f"no folder {root!r}; {describe_nearest_folder(root)}", file=root)


def _unlistable(root: str, error: Exception) -> SourceError:
    path = getattr(error, "filename", None) or root
    return SourceError(f"cannot list {path!r}: {error_text(error)}", file=path)


def _without_image(root: str, others: int) -> SourceError:
    return SourceError(
        f"no image in {root!r}: none of its {others} files ends with {', '.join(EXTENSIONS)}",
        file=root,
    )


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _walk_local(
    folder: str,
    top: list[str],
    dangling: list[str],
    prefix: str = "",
    ancestors: tuple[tuple[int, int], ...] = (),
) -> Iterator[ImageFile | None]:
    """Yields the images below `folder`, following links, and None for each other file.

    Appends its direct subfolders to `top`, and images that are no files, or links to none, to
    `dangling`.
    """
    stat = os.stat(folder)  # noqa: PTH116
    inode = (stat.st_dev, stat.st_ino)
    if inode in ancestors:
        raise SourceError(f"{folder!r} is a link to a folder that contains it", file=folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                if not prefix:
                    top.append(entry.name)
                yield from _walk_local(
                    entry.path, top, dangling, f"{prefix}{entry.name}/", (*ancestors, inode)
                )
            elif not _is_image(entry.name):
                yield None
            else:
                path = prefix + entry.name
                try:
                    stat = entry.stat()
                except OSError as error:
                    if error.errno not in _DANGLING:
                        raise
                    dangling.append(path)
                    continue
                if S_ISREG(stat.st_mode):
                    yield ImageFile(path, stat.st_size, stat.st_mtime_ns)
                else:  # of a pipe, a read would never end
                    dangling.append(path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _DANGLING:
            raise
        return False


def _walk_remote(root: str, top: list[str], stat: bool) -> Iterator[ImageFile | None]:
    base = root.rstrip("/") + "/"
    for folder, folders, names in tf.io.gfile.walk(root):
        prefix = f"{folder.rstrip('/')}/"[len(base) :]
        # Depending on the file system, gfile returns folders with a slash at the end or without.
        subfolders = [name.rstrip("/") for name in folders]
        if not prefix:
            top.extend(name for name in subfolders if not name.startswith("."))
        if any(part.startswith(".") for part in prefix.split("/")):
            continue
        for name in names:
            if name.startswith("."):
                continue
            path = prefix + name
            # TensorFlow lists names only.
            stamp = stat_file(base + path) if stat and _is_image(name) else ()
            yield ImageFile(path, *stamp) if _is_image(name) else None
