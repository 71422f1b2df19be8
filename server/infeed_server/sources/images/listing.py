"""Image files below a folder, in an order that is the same on every machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from infeed.errors import SourceError
from infeed_server.sources.files import (
    describe_nearest_folder,
    error_text,
    is_folder,
    is_remote,
    stat_file,
)

log = logging.getLogger(__name__)

EXTENSIONS = (".jpg", ".jpeg", ".png")
"""Endings of image file names, compared without case."""


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
    `stat_remote`, which takes one per file. Images that are links to no file are left out, and
    counted in a warning. Raises `SourceError` when the folder does not exist, cannot be read or
    contains no image.
    """
    if not is_folder(root):
        raise SourceError(f"no folder {root!r}; {describe_nearest_folder(root)}", file=root)
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
    except (OSError, tf.errors.OpError) as error:
        path = getattr(error, "filename", None) or root
        raise SourceError(f"cannot list {path!r}: {error_text(error)}", file=path) from error
    if dangling:
        log.warning(
            "%s: %d images are links to no file and are left out, such as %s",
            root,
            len(dangling),
            min(dangling),
        )
    if not images:
        raise SourceError(
            f"no image in {root!r}: none of its {others} files ends with {', '.join(EXTENSIONS)}",
            file=root,
        )
    images.sort()
    return ImageListing(root, tuple(images), tuple(sorted(folders)))


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

    Appends its direct subfolders to `top`, and images that are links to no file to `dangling`.
    """
    stat = os.stat(folder)  # noqa: PTH116
    inode = (stat.st_dev, stat.st_ino)
    if inode in ancestors:
        raise SourceError(f"{folder!r} is a link to a folder that contains it", file=folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
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
                except FileNotFoundError:
                    dangling.append(path)
                else:
                    yield ImageFile(path, stat.st_size, stat.st_mtime_ns)


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
