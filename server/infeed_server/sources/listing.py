"""The image files of a folder, in an order that every machine agrees on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from infeed.errors import SourceError
from infeed_server.sources.files import is_folder, is_remote, nearest, why

EXTENSIONS = (".jpg", ".jpeg", ".png")
"""What an image's name ends with, in any case."""


class Entry(NamedTuple):
    """A file: its path below the folder, parts joined by `/`, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Listing:
    """The images below a folder, sorted by path, and the names of its direct subfolders."""

    root: str
    images: tuple[Entry, ...]
    folders: tuple[str, ...]


def list_images(root: str) -> Listing:
    """All images below a folder, however deep; names that begin with a dot are left out.

    Raises `SourceError` when the folder does not exist, cannot be read or holds no image.
    """
    if not is_folder(root):
        raise SourceError(f"no folder {root!r}; {nearest(root)}", file=root)
    folders: list[str] = []
    images: list[Entry] = []
    others = 0
    try:
        walk = _remote(root, folders) if is_remote(root) else _local(root, "", (), folders)
        for entry in walk:
            if entry.path.lower().endswith(EXTENSIONS):
                images.append(entry)
            else:
                others += 1
    except (OSError, tf.errors.OpError) as error:
        place = getattr(error, "filename", None) or root
        raise SourceError(f"cannot list {place!r}: {why(error)}", file=place) from error
    if not images:
        raise SourceError(
            f"no image in {root!r}: none of its {others} files ends with {', '.join(EXTENSIONS)}",
            file=root,
        )
    return Listing(root, tuple(sorted(images)), tuple(sorted(folders)))


def _local(
    folder: str, prefix: str, above: tuple[tuple[int, int], ...], top: list[str]
) -> Iterator[Entry]:
    """The files below `folder`, links followed; `above` holds the folders that lead to it."""
    about = os.stat(folder)  # noqa: PTH116
    here = (about.st_dev, about.st_ino)
    if here in above:
        raise SourceError(f"{folder!r} is a link to a folder that holds it", file=folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if not prefix:
                    top.append(entry.name)
                yield from _local(entry.path, f"{prefix}{entry.name}/", (*above, here), top)
            else:
                yield Entry(prefix + entry.name, entry.stat().st_size)


def _remote(root: str, top: list[str]) -> Iterator[Entry]:
    base = root.rstrip("/") + "/"
    for folder, folders, names in tf.io.gfile.walk(root):
        prefix = f"{folder.rstrip('/')}/"[len(base) :]
        # gfile gives folders with or without a slash at the end, as the file system has it.
        inner = [name.rstrip("/") for name in folders]
        if not prefix:
            top.extend(name for name in inner if not name.startswith("."))
        if any(part.startswith(".") for part in prefix.split("/")):
            continue
        for name in names:
            if not name.startswith("."):
                size = tf.io.gfile.stat(f"{base}{prefix}{name}").length
                yield Entry(prefix + name, int(size))
