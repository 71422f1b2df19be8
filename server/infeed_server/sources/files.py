"""Paths and files: local ones through the operating system, remote ones through tf.io.gfile."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tensorflow as tf
from pydantic import BeforeValidator

from infeed.errors import SourceError

INDEX_MARK = ".infeed-index.npz"
"""What the name of a cached record index holds; a glob over data files never gives one."""


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


PathText = Annotated[str, BeforeValidator(_text)]
"""A path or glob. From Python a `pathlib.Path` does too."""


class Stamp(NamedTuple):
    """What tells that a file changed: its size in bytes and its modification time."""

    size: int
    mtime_ns: int


def is_remote(path: str) -> bool:
    """Whether only tf.io.gfile can open this path."""
    return "://" in path


def rebase(path: str, base: Path) -> str:
    """The path seen from `base`; one that is absolute or remote stays as it is."""
    return path if is_remote(path) or os.path.isabs(path) else str(base / path)  # noqa: PTH117


def absolute(path: str) -> str:
    """The path as it holds when the working directory changes."""
    return path if is_remote(path) else str(Path(path).absolute())


def stamp(path: str) -> Stamp:
    """Size and time of a file. Raises `SourceError` when it cannot be looked at."""
    try:
        if is_remote(path):
            remote = tf.io.gfile.stat(path)
            return Stamp(int(remote.length), int(remote.mtime_nsec))
        local = Path(path).stat()
        return Stamp(local.st_size, local.st_mtime_ns)
    except (OSError, tf.errors.OpError) as error:
        raise SourceError(f"cannot open {path!r}: {why(error)}", file=path) from error


def read_bytes(path: str) -> bytes:
    """All of a file. Raises `SourceError` when it cannot be read."""
    try:
        if is_remote(path):
            with tf.io.gfile.GFile(path, "rb") as file:
                content: bytes = file.read()
                return content
        return Path(path).read_bytes()
    except (OSError, tf.errors.OpError) as error:
        raise SourceError(f"cannot read {path!r}: {why(error)}", file=path) from error


def is_folder(path: str) -> bool:
    if not is_remote(path):
        return Path(path).is_dir()
    try:
        return bool(tf.io.gfile.isdir(path))
    except tf.errors.OpError:
        return False


def why(error: BaseException) -> str:
    """The operating system's or TensorFlow's own words, without their prefixes."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(getattr(error, "message", None) or error)


def expand(patterns: Iterable[str]) -> list[str]:
    """The files that paths and globs name, absolute, sorted, each once.

    A local glob knows `*`, `?`, `[...]` and `**`. Raises `SourceError` for a pattern that names no
    file; the message says how far the path exists.
    """
    found: set[str] = set()
    for pattern in patterns:
        files = [path for path in _matches(pattern) if INDEX_MARK not in path.rpartition("/")[2]]
        if not files:
            raise SourceError(_nothing(pattern), pattern=pattern)
        found.update(absolute(path) for path in files)
    return sorted(found)


def _matches(pattern: str) -> list[str]:
    if is_remote(pattern):
        try:
            return [path for path in tf.io.gfile.glob(pattern) if not tf.io.gfile.isdir(path)]
        except tf.errors.NotFoundError:
            return []
        except tf.errors.OpError as error:
            raise SourceError(f"cannot list {pattern!r}: {why(error)}", pattern=pattern) from error
    # A file whose own name holds a bracket or a star is meant literally.
    if Path(pattern).is_file():
        return [pattern]
    return [path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207


def _nothing(pattern: str) -> str:
    if is_folder(pattern):
        return f"{pattern!r} is a folder; name its files, as in '{pattern.rstrip('/')}/*'"
    return f"no file matches {pattern!r}; {nearest(pattern)}"


def nearest(path: str) -> str:
    """A clause that says how far a path exists, and what is there."""
    folder = absolute(path).rpartition("/")[0]
    while not is_folder(folder or "/"):
        upper = folder.rpartition("/")[0]
        if is_remote(folder) and (upper.endswith(":/") or not is_remote(upper)):
            return f"{folder!r} does not exist"
        folder = upper
    folder = folder or "/"
    try:
        entries = sorted(
            tf.io.gfile.listdir(folder) if is_remote(folder) else os.listdir(folder)  # noqa: PTH208
        )
    except (OSError, tf.errors.OpError) as error:
        return f"{folder!r} cannot be listed: {why(error)}"
    shown = ", ".join(entries[:5]) + (", ..." if len(entries) > 5 else "")
    return f"the nearest folder that exists is {folder!r}, which holds {shown or 'nothing'}"


__all__ = [
    "INDEX_MARK",
    "PathText",
    "Stamp",
    "absolute",
    "expand",
    "is_folder",
    "is_remote",
    "nearest",
    "read_bytes",
    "rebase",
    "stamp",
    "why",
]
