"""Paths and files: local ones through the operating system, others in object stores."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import BeforeValidator

from infeed.shared.errors import SourceError
from infeed_server.storage.faults import error_text
from infeed_server.storage.stamp import FileStamp, StoredFile
from infeed_server.storage.stores import store_of

INDEX_SUFFIX = ".infeed-index.npz"
"""Part of every cached record index's name. Globs over data files skip such names."""


def _to_string(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


PathString = Annotated[str, BeforeValidator(_to_string)]
"""A path or glob; Python callers may also pass a `pathlib.Path`."""


def abbreviate(items: Sequence[object], maximum: int = 5) -> str:
    """Returns the first items and the number of the rest, for a message."""
    more = len(items) - maximum
    return ", ".join(map(str, items[:maximum])) + (f" and {more} more" if more > 0 else "")


def is_remote(path: str) -> bool:
    """Returns whether a path is that of an object in a store."""
    return "://" in path


def rebase(value: Any, base: Path) -> Any:
    """Resolves relative paths in a value, a list or a mapping against `base`."""
    if isinstance(value, list):
        return [rebase(path, base) for path in value]
    if isinstance(value, dict):
        return {name: rebase(path, base) for name, path in value.items()}
    if not isinstance(value, str) or is_remote(value) or os.path.isabs(value):  # noqa: PTH117
        return value
    return str(base / value)


def absolute_path(path: str) -> str:
    """Returns the path made independent of the working directory."""
    return path if is_remote(path) else str(Path(path).absolute())


def stat_file(path: str) -> FileStamp:
    """Returns the version of a file. Raises `OSError`."""
    if is_remote(path):
        return store_of(path).stat(path)
    return FileStamp.of(os.stat(path))  # noqa: PTH116


@contextmanager
def reading(path: str, task: str = "read") -> Iterator[None]:
    """Turns file errors in the block into a `SourceError`: cannot read the path."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"cannot {task} {path!r}: {error_text(error)}", file=path) from error


def read_stamp(path: str) -> FileStamp:
    """Returns what `stat_file` does. Raises `SourceError` when that fails."""
    with reading(path, "open"):
        return stat_file(path)


def changed_error(path: str, difference: str = "", first: str = "") -> SourceError:
    """Returns the error for a file that changed; `first` is what to do before a restart."""
    detail = f": {difference}" if difference else ""
    return SourceError(
        f"{path} changed since it was opened{detail}; {first}restart the server",
        file=path,
        fault="changed",
    )


def damaged_error(
    path: str,
    problem: str,
    remedy: str = "put a good copy in its place and restart the server",
    **where: Any,
) -> SourceError:
    """Returns the error for a file whose bytes are not those once written."""
    unread = "cannot be read: " * ("sample" in where)
    text = f"{unread}{path}{problem}; {remedy}"
    return SourceError(text, file=path, fault="damaged", **where)


def read_bytes(path: str) -> bytes:
    """Reads a whole file. Raises `SourceError` if that fails, or for an endless pipe."""
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113
        raise SourceError(f"cannot read {path!r}: it is not a regular file", file=path)
    with reading(path):
        return store_of(path).read(path) if is_remote(path) else Path(path).read_bytes()


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Replaces a local file with what `write` writes, or leaves it unchanged. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_file(path: str) -> bool:
    """Returns whether there is a file. Raises `SourceError` if a store does not answer."""
    if not is_remote(path):
        return os.path.isfile(path)  # noqa: PTH113
    with reading(path):
        try:
            store_of(path).stat(path)
        except FileNotFoundError:
            return False
        return True


def has_match(pattern: str) -> bool:
    """Returns whether a pattern matches a file. Raises `SourceError`."""
    return any(_remote_matches(pattern) if is_remote(pattern) else _local_matches(pattern))


def is_folder(path: str) -> bool:
    if not is_remote(path):
        # Unlike `Path.is_dir`, False for an inaccessible path; listing it reports why.
        return os.path.isdir(path)  # noqa: PTH112
    try:
        return any(store_of(path).list_files(path, limit=1))
    except OSError:
        return False


def expand_globs(patterns: Iterable[str]) -> list[str]:
    """Lists the files that paths and globs match: absolute, sorted, each once. Raises `SourceError`
    for a pattern without a match, with the nearest folder that exists."""
    return [file.path for file in list_files(patterns)]


def list_files(patterns: Iterable[str]) -> list[StoredFile]:
    """Lists files like `expand_globs`, with their versions; an object needs no request for it."""
    found: dict[str, StoredFile] = {}
    for pattern in patterns:
        matches = _remote_matches(pattern) if is_remote(pattern) else _local_matches(pattern)
        files = [file for file in matches if INDEX_SUFFIX not in file.path.rpartition("/")[2]]
        if not files:
            raise SourceError(_no_match(pattern), pattern=pattern)
        found.update((file.path, file) for file in files)
    return [found[path] for path in sorted(found)]


def _remote_matches(pattern: str) -> list[StoredFile]:
    with reading(pattern, "list"):
        return store_of(pattern).glob_files(pattern)


def _local_matches(pattern: str) -> Iterator[StoredFile]:
    # A pattern that is an existing file's name, brackets and stars included, is meant literally.
    # Unlike `Path.is_file`, `isfile` returns False for an inaccessible path.
    paths = [pattern]
    if not os.path.isfile(pattern):  # noqa: PTH113
        paths = glob.glob(pattern, recursive=True)  # noqa: PTH207
    for path in paths:
        if os.path.isfile(path):  # noqa: PTH113
            yield StoredFile(absolute_path(path), read_stamp(path))


def _no_match(pattern: str) -> str:
    if is_folder(pattern):
        return f"{pattern!r} is a folder; name its files, as in '{pattern.rstrip('/')}/*'"
    if not is_remote(pattern) and os.path.exists(pattern):  # noqa: PTH110
        return f"{pattern!r} is not a regular file"
    return f"no file matches {pattern!r}; {describe_nearest_folder(pattern)}"


def describe_nearest_folder(path: str) -> str:
    """Describes the path's deepest existing folder and its content, as a clause."""
    if is_remote(path):
        return _describe_nearest_objects(path)
    folder = next(parent for parent in Path(path).absolute().parents if parent.is_dir())
    try:
        entries = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError as error:
        return f"{str(folder)!r} cannot be listed: {error_text(error)}"
    listed = abbreviate(entries) or "nothing"
    return f"the nearest folder that exists is {str(folder)!r}, which holds {listed}"


def _describe_nearest_objects(path: str) -> str:
    folder = f"{path}/"  # the path may be a bucket
    try:
        while (folder := folder.rpartition("/")[0]).count("/") >= 2:  # the bucket has two
            if names := store_of(path).list_names(folder):
                return f"the nearest folder with objects is {folder!r}, which holds " + abbreviate(
                    names
                )
    except OSError as error:
        return f"{folder!r} cannot be listed: {error_text(error)}"
    return "its bucket is empty"
