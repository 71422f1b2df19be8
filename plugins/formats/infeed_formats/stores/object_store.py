"""The object stores `gs://`, `s3://`, `az://` and `https://`, and local files as `file://`."""

from __future__ import annotations

import asyncio
import errno
import fnmatch
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import obstore

from infeed_formats.stores.errors import os_error
from infeed_formats.stores.requests import (
    ANSWER_SECONDS,
    Result,
    of_process,
    split_path,
    traffic,
)
from infeed_server.storage.stamp import FileStamp, StoredFile
from infeed_server.storage.stores import ObjectRead

__all__ = [
    "glob_files",
    "list_files",
    "list_names",
    "max_gap",
    "read",
    "start",
    "stat",
    "traffic",
    "write",
]

_MAX_GAP = 4 << 20
"""Maximum unused bytes that are read to save a request."""

_MIN_BYTES_PER_SECOND = 1 << 20
"""Rate below which a body is read again."""

_FOLDER_SECONDS = 60.0
"""Limit for listing one folder, whose pages of a thousand objects obstore joins."""

_LIST_ATTEMPTS = 4
"""Attempts for each page; obstore does not retry a truncated one, as its request succeeded."""


def max_gap() -> int:
    """Returns the largest gap between two ranges for which one request is faster than two."""
    process = of_process()
    return min(_MAX_GAP, int(process.round_trip * process.bytes_per_second))


def start(reads: Sequence[ObjectRead]) -> Future[list[bytes | OSError]]:
    """Starts concurrent reads of ranges; the result has the bytes or the error of each."""

    async def gather() -> list[bytes | OSError]:
        return await asyncio.gather(*map(_read_range, reads))

    return of_process().start(gather())


def read(path: str) -> bytes:
    """Reads a whole object. Raises `OSError`."""

    async def get(store: Any, key: str) -> bytes:
        result = await _answer(obstore.get_async(store, key))
        return await _body(result, result.meta["size"])

    return _call(path, get)


def stat(path: str) -> FileStamp:
    """Returns the version of an object. Raises `OSError`."""
    return _stamp(_call(path, lambda store, key: _answer(obstore.head_async(store, key))))


def write(path: str, content: bytes) -> None:
    """Creates or replaces an object. Raises `OSError`."""
    _call(path, lambda store, key: obstore.put_async(store, key, content))


def list_files(
    prefix: str, limit: int | None = None, *, is_flat: bool = False
) -> Iterator[StoredFile]:
    """Yields the objects below a folder, or about `limit` of them, with their versions; a request
    lists a thousand. Raises `OSError`, even for a key that cannot be read, unless `is_flat` and the
    key is in a subfolder, whose objects may be left out."""
    folder = _folder(prefix)

    async def collect(store: Any, key: str) -> list[Any]:
        found: list[Any] = []
        failures = 0
        while True:
            after = {"offset": found[-1]["path"]} if found else {}
            pages = aiter(obstore.list(store, prefix=key or None, **after))
            try:
                while limit is None or len(found) < limit:
                    found += await _answer(anext(pages))
                    failures = 0
                return found
            except StopAsyncIteration:
                return found
            except Exception as error:
                failures += 1
                code = os_error(error, prefix, 0).errno
                if code == errno.EINVAL and is_flat:
                    request = obstore.list_with_delimiter_async(store, key or None)
                    return list((await _answer(request, _FOLDER_SECONDS))["objects"])
                if failures == _LIST_ATTEMPTS or code not in (errno.EIO, errno.EHOSTUNREACH):
                    raise
                await asyncio.sleep(0.1 * failures)

    root, _ = split_path(folder)
    for meta in _call(folder, collect):
        yield StoredFile(f"{root}/{meta['path']}", _stamp(meta))


def list_names(folder: str) -> list[str]:
    """Returns the names of a folder's objects and subfolders. Raises `OSError`."""

    async def collect(store: Any, key: str) -> list[str]:
        request = obstore.list_with_delimiter_async(store, prefix=key or None)
        found = await _answer(request, _FOLDER_SECONDS)
        return [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]

    return sorted(path.rstrip("/").rpartition("/")[2] for path in _call(_folder(folder), collect))


def glob_files(pattern: str) -> list[StoredFile]:
    """Returns the objects that a pattern matches, like the module `glob`: `**` matches any folders,
    and names with a leading dot are left out. A pattern that is an object's name means that
    object."""
    fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    if fixed == pattern:
        try:
            return [StoredFile(pattern, stat(pattern))]
        except FileNotFoundError:
            return []
    folder = fixed.rpartition("/")[0]
    below = pattern.removeprefix(f"{folder}/")
    is_flat = "/" not in below and "**" not in below
    found = list(list_files(folder, is_flat=is_flat))
    literal = [file for file in found if file.path == pattern]
    folders = {file.path.rpartition("/")[0] for file in found}  # consoles make objects of them
    parts = (f"{pattern}/*" if pattern.endswith("/**") else pattern).split("/")
    return literal or [
        file
        for file in found
        if (file.stamp.size or file.path not in folders) and _matches(file.path.split("/"), parts)
    ]


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Returns whether the parts of a path match the parts of a pattern."""
    if not path or not pattern:
        return not path and not pattern
    name, (part, *rest) = path[0], pattern
    is_visible = part.startswith(".") or not name.startswith(".")
    if part == "**":
        return _matches(path, rest) or (is_visible and _matches(path[1:], pattern))
    return is_visible and fnmatch.fnmatchcase(name, part) and _matches(path[1:], rest)


def _folder(path: str) -> str:
    """Returns the path of a folder without trailing slashes. Raises `OSError`."""
    root, key = split_path(path)
    if root.startswith("http"):
        raise OSError(errno.EOPNOTSUPP, "a web server lists no files; name each of them")
    return f"{root}/{key.rstrip('/')}"


async def _read_range(read: ObjectRead) -> bytes | OSError:
    process, stamp = of_process(), read.file.stamp
    root, key = split_path(read.file.path)
    options: Any = {"range": (read.begin, read.begin + read.size)}
    if stamp.etag and not stamp.etag.startswith("W/"):  # a weak one never matches
        options["if_match"] = stamp.etag
    try:
        if not read.size:  # a range cannot be empty
            return b""
        async with process.in_flight:
            begin = time.perf_counter()
            process.requests += 1
            result = await _answer(obstore.get_async(process.store(root), key, options=options))
            if _stamp(result.meta) != stamp:
                return OSError(errno.ESTALE, stamp.difference(_stamp(result.meta)))
            answered = time.perf_counter()
            content = await _body(result, read.size)
            process.received_bytes += len(content)
        process.measure(answered - begin, len(content), time.perf_counter() - answered)
    except Exception as error:  # noqa: BLE001 - obstore's, each of which is mapped
        return os_error(error, read.file.path, ANSWER_SECONDS)
    if len(content) != read.size:
        return OSError(errno.EIO, f"only {len(content)} of {read.size} bytes were read")
    return content


async def _answer(request: Any, extra_seconds: float = 0.0) -> Any:
    """Waits a limited time for an answer or its beginning: finding credentials can take minutes."""

    async def wait() -> Any:
        return await request  # obstore's requests are not coroutines

    return await asyncio.wait_for(wait(), ANSWER_SECONDS + extra_seconds)


async def _body(result: Any, size: int) -> bytes:
    return bytes(await _answer(result.bytes_async(), size / _MIN_BYTES_PER_SECOND))


def _call(path: str, function: Callable[[Any, str], Awaitable[Result]]) -> Result:
    """Returns the answer to the request that `function` makes for a store and a key on the
    request thread. Raises `OSError`."""
    root, key = split_path(path)
    process = of_process()

    async def request() -> Result:
        return await function(process.store(root), key)

    try:
        return process.start(request()).result()
    except Exception as error:
        raise os_error(error, path, ANSWER_SECONDS) from error


def _stamp(meta: Any) -> FileStamp:
    # A listing has milliseconds, unlike the answer to a read.
    modified = int(meta["last_modified"].timestamp()) * 10**9
    etag = meta.get("e_tag") or ""
    if etag and not etag.endswith('"'):  # some stores list it without the quotes of HTTP
        etag = f'"{etag}"'
    return FileStamp(meta["size"], 0 if etag else modified, etag)
