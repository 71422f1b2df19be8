"""Image files below a folder, in an order that is the same on every machine."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from stat import S_ISREG

from infeed.shared.errors import SourceError
from infeed_server.storage import object_store
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import describe_nearest_folder, is_folder, is_remote
from infeed_server.storage.stamp import FileStamp, StoredFile

log = logging.getLogger(__name__)

EXTENSIONS = (".jpg", ".jpeg", ".png")
"""Endings of image file names, compared without case."""

_DANGLING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a link to no file: to a name that is not there, below a file, or back to itself."""


@dataclass(frozen=True)
class ImageListing:
    """The images below a folder, sorted by their path in it, which `/` separates, and the names of
    its direct subfolders."""

    root: str
    images: tuple[StoredFile, ...]
    folders: tuple[str, ...]


def list_images(root: str) -> ImageListing:
    """Lists all images below a folder, except names that begin with a dot. Raises `SourceError`.
    Images that are no files, or links to none, are left out, and counted in a warning."""
    dangling: list[str] = []
    try:
        images, folders = _objects(root) if is_remote(root) else _local_images(root, dangling)
    except OSError as error:
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


def _local_images(root: str, dangling: list[str]) -> tuple[list[StoredFile], set[str]]:
    images, folders, base = [], set(), root.rstrip("/") + "/"
    for folder, names in _walk(root):
        prefix = f"{folder.rstrip('/')}/"[len(base) :]
        if prefix.count("/") == 1:
            folders.add(prefix.partition("/")[0])
        for path in (prefix + name for name in names if _is_image(name)):
            if stamp := _regular_stamp(base + path):
                images.append(StoredFile(path, stamp))
            else:
                dangling.append(path)
    return images, folders


def _objects(root: str) -> tuple[list[StoredFile], set[str]]:
    images, base = [], root.rstrip("/") + "/"
    files = list(object_store.list_files(root))
    if not files:
        raise _no_folder(root)
    for file in files:
        *folders, name = file.path.removeprefix(base).split("/")
        if _is_image(name) and not any(folder.startswith(".") for folder in folders):
            images.append(StoredFile(file.path.removeprefix(base), file.stamp))
    return images, {image.path.partition("/")[0] for image in images if "/" in image.path}


def require_images(root: str) -> None:
    """Raises `SourceError` unless a folder contains an image; stops at the first one."""
    if not any(_is_image(name) for _, names in _walk(root) for name in names):
        raise _without_image(root)


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def _without_image(root: str) -> SourceError:
    endings = ", ".join(EXTENSIONS)
    return SourceError(f"no image in {root!r}: none of its files ends with {endings}", file=root)


def _no_folder(root: str) -> SourceError:
    return SourceError(f"no folder {root!r}; {describe_nearest_folder(root)}", file=root)


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yields folders and the names of their files. Raises `SourceError` for a link to what contains
    it, and errors of files."""
    if not is_folder(root):
        raise _no_folder(root)
    above: dict[str, frozenset[str]] = {}
    for folder, folders, names in os.walk(root, onerror=_fail, followlinks=True):
        real = os.path.realpath(folder)
        parents = above.get(os.path.dirname(folder), frozenset())  # noqa: PTH120
        if real in parents:
            raise SourceError(f"{folder!r} is a link to a folder that contains it", file=folder)
        above[folder] = parents | {real}
        # The walk descends into the folders that are left in the list.
        folders[:] = [name for name in folders if not name.startswith(".")]
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
