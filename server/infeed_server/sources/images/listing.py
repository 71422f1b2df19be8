"""Image files below a folder, in an order that is the same on every machine."""

from __future__ import annotations

import errno
import logging
import mimetypes
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from stat import S_ISREG

from infeed.shared.errors import SourceError
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import (
    abbreviate,
    describe_nearest_folder,
    is_folder,
    is_remote,
)
from infeed_server.storage.stamp import FileStamp, StoredFile
from infeed_server.storage.stores import store_of

log = logging.getLogger(__name__)

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp")
"""Endings of the files that `decode_image` decodes, compared without case."""

_HIDDEN = "."
"""Prefix of names that are skipped silently, like a shell's `*` does."""

_SYSTEM_FOLDERS = ("@", "#", "$", "__", "lost+found")
"""First characters of system folders' names: `@eaDir`, `#recycle`, `$RECYCLE.BIN`, `__MACOSX`. They
hold thumbnails and deleted files."""

_DANGLING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a broken link: to a missing name, below a file, or back to itself."""

_CLASS_THREADS = 16
"""Threads that look for an image in each folder: in a store, each look is a request."""


@dataclass(frozen=True)
class ImageListing:
    """The images below a folder, sorted by their relative path (with `/`); the names of its direct
    subfolders with images, and of those without."""

    root: str
    images: tuple[StoredFile, ...]
    folders: tuple[str, ...]
    empty_folders: tuple[str, ...] = ()


@dataclass
class _LeftOut:
    """What a listing skips."""

    system_folders: set[str] = field(default_factory=set)
    no_files: list[str] = field(default_factory=list)
    other_formats: Counter[str] = field(default_factory=Counter)

    def warn(self, root: str) -> None:
        if found := sorted(self.system_folders):
            log.warning(
                "%s: %d folders are skipped because their names begin like system folders (%s): %s",
                *(root, len(found), " ".join(_SYSTEM_FOLDERS), abbreviate(found)),
            )
        if self.no_files:
            log.warning(
                "%s: %d images are skipped because they are broken links or not files, such as %s",
                *(root, len(self.no_files), min(self.no_files)),
            )
        if self.other_formats:
            counts = (f"{count} {ending}" for ending, count in sorted(self.other_formats.items()))
            log.warning(
                "%s: %d images are skipped because their formats cannot be decoded (%s); "
                "convert them to JPEG or PNG",
                *(root, self.other_formats.total(), ", ".join(counts)),
            )


def list_images(root: str) -> ImageListing:
    """Lists all images below a folder, except in system folders and under names that begin with a
    dot. Raises `SourceError`. Warnings count what else is skipped."""
    images: list[StoredFile] = []
    folders: set[str] = set()
    left_out = _LeftOut()
    with _listing(root):
        for path, stamp in _files(root, left_out.system_folders):
            top, slash, _ = path.partition("/")
            folders.update([top] if slash else ())
            if not _is_image(path):
                if (mimetypes.guess_type(path)[0] or "").startswith("image/"):
                    left_out.other_formats[os.path.splitext(path)[1].lower()] += 1  # noqa: PTH122
            elif stamp := stamp or _regular_stamp(f"{root}/{path}"):
                images.append(StoredFile(path, stamp))
            else:
                left_out.no_files.append(path)
    left_out.warn(root)
    if not images:
        raise _without_image(root) if is_folder(root) else _no_folder(root)
    classes = {image.path.partition("/")[0] for image in images if "/" in image.path}
    empty = tuple(sorted(folders - classes))
    return ImageListing(root, tuple(sorted(images)), tuple(sorted(classes)), empty)


def class_folders(root: str) -> tuple[str, ...]:
    """Returns the `folders` of a folder's listing, faster: the first image of each is enough.
    Raises `SourceError`."""
    with _listing(root), ThreadPoolExecutor(_CLASS_THREADS) as pool:
        names = store_of(root).list_names(root) if is_remote(root) else os.listdir(root)  # noqa: PTH208
        visible = sorted(name for name in names if not _is_left_out(name))
        found = pool.map(has_image, (f"{root}/{name}" for name in visible))
        return tuple(name for name, is_class in zip(visible, found, strict=True) if is_class)


def require_images(root: str) -> None:
    """Raises `SourceError` unless a folder contains an image; stops at the first one."""
    if not is_folder(root):
        raise _no_folder(root)
    if not has_image(root):
        raise _without_image(root)


def has_image(folder: str) -> bool:
    """Returns whether an image is below a folder; False for a file."""
    if not is_remote(folder) and not is_folder(folder):
        return False
    # There is nearly always an image among the first objects.
    return any(
        _is_image(path) and (stamp or _regular_stamp(f"{folder}/{path}"))
        for limit in ((1, None) if is_remote(folder) else (None,))
        for path, stamp in _files(folder, set(), limit)
    )


@contextmanager
def _listing(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        path = getattr(error, "filename", None) or root
        raise SourceError(f"cannot list {path!r}: {error_text(error)}", file=path) from error


def _files(
    root: str, system_folders: set[str], limit: int | None = None
) -> Iterator[tuple[str, FileStamp | None]]:
    """Yields the relative path of each file that is not skipped, with its stamp if known, and of
    local folders, ending with a slash. Adds system folders to a set. Raises `OSError` and
    `SourceError`."""
    base = root.rstrip("/") + "/"
    if not is_remote(root):
        for folder, names in _walk(root, system_folders):
            prefix = f"{folder.rstrip('/')}/"[len(base) :]
            yield prefix, None
            yield from ((prefix + name, None) for name in names if not name.startswith(_HIDDEN))
        return
    for file in store_of(root).list_files(root, limit):
        path = file.path.removeprefix(base)
        *folders, name = path.split("/")
        outside = next((n for n, folder in enumerate(folders) if _is_left_out(folder)), None)
        if outside is None and not name.startswith(_HIDDEN):
            yield path, file.stamp
        elif outside is not None and not folders[outside].startswith(_HIDDEN):
            system_folders.add("/".join(folders[: outside + 1]))


def _is_left_out(folder: str) -> bool:
    return folder.startswith((_HIDDEN, *_SYSTEM_FOLDERS))


def _is_image(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS)


def _without_image(root: str) -> SourceError:
    endings = ", ".join(EXTENSIONS)
    return SourceError(f"no image in {root!r}: none of its files ends with {endings}", file=root)


def _no_folder(root: str) -> SourceError:
    return SourceError(f"no folder {root!r}; {describe_nearest_folder(root)}", file=root)


def _walk(root: str, system_folders: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields folders and the names of their files. Raises `SourceError` for a link to a folder that
    contains it, and `OSError`."""
    if not is_folder(root):
        raise _no_folder(root)
    above: dict[str, frozenset[str]] = {}
    for folder, folders, names in os.walk(root, onerror=_fail, followlinks=True):
        real = os.path.realpath(folder)
        parents = above.get(os.path.dirname(folder), frozenset())  # noqa: PTH120
        if real in parents:
            raise SourceError(f"{folder!r} is a link to a folder that contains it", file=folder)
        above[folder] = parents | {real}
        system_folders.update(
            os.path.relpath(f"{folder}/{name}", root)
            for name in folders
            if _is_left_out(name) and not name.startswith(_HIDDEN)
        )
        # The walk descends into the folders that are left in the list.
        folders[:] = [name for name in folders if not _is_left_out(name)]
        yield folder, names


def _fail(error: OSError) -> None:
    raise error


def _regular_stamp(path: str) -> FileStamp | None:
    """Returns a local file's stamp; None for a broken link, or anything but a regular file."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if error.errno not in _DANGLING:
            raise
        return None
    return FileStamp.of(stat) if S_ISREG(stat.st_mode) else None  # reading a pipe would never end
