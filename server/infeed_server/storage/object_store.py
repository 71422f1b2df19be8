"""Objects in stores, `gs://`, `s3://`, `az://` and `https://`, through obstore.

All requests of a process run in one thread of its own, which its first request starts: the threads
of obstore do not survive a fork. Errors are `OSError`, as for local files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fnmatch
import importlib
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from infeed.shared.errors import ConfigError, MissingExtraError
from infeed_server.storage.stamp import FileStamp, StoredFile

obstore: Any = None  # the extra `stores`
with contextlib.suppress(ImportError):
    obstore = importlib.import_module("obstore")
    stores = importlib.import_module("obstore.store")

SCHEMES = ("gs", "s3", "az", "https", "http", "file")
"""Schemes of paths: Google Cloud Storage, S3, Azure, web servers, which list no files, and local
files by the way of objects."""

_IN_FLIGHT = 256
"""Requests at a time: 110 KB each with a round trip of 30 ms are 900 MB/s."""

_RETRIES: dict[str, Any] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=3),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "base": 2},
}
"""Of a request; `retry_faults` repeats the read after them."""

_CLIENT: dict[str, Any] = {
    "allow_http": True,  # if the user names such an endpoint
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=30),
    "pool_max_idle_per_host": _IN_FLIGHT,
}

_MAX_GAP = 4 << 20
"""Bytes at most that are read and not used to save a request."""

Result = TypeVar("Result")


class ObjectRead(NamedTuple):
    """A range of an object, which must be as it was listed."""

    file: StoredFile
    begin: int
    size: int


class ChangedObjectError(OSError):
    """An object is another one than the one that was listed."""


class _Process:
    """The stores and the thread of requests of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.stores: dict[str, Any] = {}
        self.loop = asyncio.new_event_loop()
        self.in_flight = asyncio.Semaphore(_IN_FLIGHT)
        self.round_trip, self.bytes_per_second = 0.01, 100e6
        """Measured; before the first request, the guess of a store nearby."""
        threading.Thread(target=self.loop.run_forever, name="infeed-objects", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def store(self, root: str) -> Any:
        if root not in self.stores:
            self.stores[root] = _open_store(root)
        return self.stores[root]


_lock = threading.Lock()
_process: _Process | None = None


def _of_process() -> _Process:
    global _process  # noqa: PLW0603 - one for the process, which a fork must not inherit
    with _lock:
        if _process is None or _process.pid != os.getpid():
            _process = _Process()
        return _process


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a thread that is gone may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def max_gap() -> int:
    """Returns the bytes between two ranges up to which one request for both is quicker."""
    process = _of_process()
    return min(_MAX_GAP, int(process.round_trip * process.bytes_per_second))


def read_ranges(reads: Sequence[ObjectRead]) -> list[bytes | OSError]:
    """Reads ranges at the same time; returns the bytes of each, or its error."""
    return _of_process().run(_gather(reads))


def read(path: str) -> bytes:
    """Reads a whole object. Raises `OSError`."""

    async def get(store: Any, key: str) -> bytes:
        result = await obstore.get_async(store, key)
        return bytes(await result.bytes_async())

    return _call(path, get)


def stat(path: str) -> FileStamp:
    """Returns the version of an object. Raises `OSError`."""

    async def head(store: Any, key: str) -> FileStamp:
        return _stamp(await obstore.head_async(store, key))

    return _call(path, head)


def write(path: str, content: bytes) -> None:
    """Creates or replaces an object. Raises `OSError`."""

    async def put(store: Any, key: str) -> None:
        await obstore.put_async(store, key, content)

    _call(path, put)


def delete(path: str) -> None:
    """Deletes an object. Raises `OSError`."""

    async def remove(store: Any, key: str) -> None:
        await obstore.delete_async(store, key)

    _call(path, remove)


def list_files(prefix: str, limit: int | None = None) -> Iterator[StoredFile]:
    """Yields the objects below a folder, or about `limit` of them, with their versions: a request
    for each thousand of them, and none for each. Raises `OSError`."""
    root, key = _split(prefix)
    if root.startswith("http"):
        raise OSError(errno.EOPNOTSUPP, "a web server lists no files; name each of them")

    async def collect(store: Any, key: str) -> list[Any]:
        found: list[Any] = []
        async for chunk in obstore.list(store, prefix=key or None):
            found += chunk
            if limit is not None and len(found) >= limit:
                break
        return found

    for meta in _call(f"{root}/{key.rstrip('/')}", collect):
        yield StoredFile(f"{root}/{meta['path']}", _stamp(meta))


def glob_files(pattern: str) -> list[StoredFile]:
    """Returns the objects that a pattern matches; `**` stands for any folders."""
    fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    if fixed == pattern:
        try:
            return [StoredFile(pattern, stat(pattern))]
        except FileNotFoundError:
            return []
    match = _matcher(pattern)
    return [file for file in list_files(fixed.rpartition("/")[0]) if match(file.path)]


def _matcher(pattern: str) -> Callable[[str], Any]:
    parts = []
    for part in pattern.split("/"):
        # As `fnmatch`, but a star ends at a slash.
        translated = fnmatch.translate(part).removeprefix("(?s:").removesuffix(")\\Z")
        parts.append("(?:.+/)?" if part == "**" else translated.replace(".*", "[^/]*") + "/")
    return re.compile("".join(parts).removesuffix("/")).fullmatch


async def _gather(reads: Sequence[ObjectRead]) -> list[bytes | OSError]:
    return await asyncio.gather(*map(_read_range, reads))


async def _read_range(read: ObjectRead) -> bytes | OSError:
    process, stamp = _of_process(), read.file.stamp
    root, key = _split(read.file.path)
    options: dict[str, Any] = {"range": (read.begin, read.begin + read.size)}
    if stamp.etag and not stamp.etag.startswith("W/"):  # a weak one never matches
        options["if_match"] = stamp.etag
    try:
        if not read.size:  # no range has no bytes
            return b""
        async with process.in_flight:
            begin = time.perf_counter()
            result = await obstore.get_async(process.store(root), key, options=options)
            if _stamp(result.meta) != stamp:
                return ChangedObjectError(errno.ESTALE, stamp.difference(_stamp(result.meta)))
            answered = time.perf_counter()
            content = bytes(await result.bytes_async())
        _measure(process, answered - begin, len(content), time.perf_counter() - answered)
    except Exception as error:  # noqa: BLE001 - obstore's, of which each is mapped
        return _os_error(error, read.file.path)
    if len(content) != read.size:
        return OSError(errno.EIO, f"only {len(content)} of {read.size} bytes are read")
    return content


def _measure(process: _Process, round_trip: float, size: int, seconds: float) -> None:
    process.round_trip += (round_trip - process.round_trip) / 16
    if size >= 1 << 16:
        rate = size / max(seconds, 1e-4)
        process.bytes_per_second += (rate - process.bytes_per_second) / 16


def _call(path: str, function: Callable[[Any, str], Coroutine[Any, Any, Result]]) -> Result:
    root, key = _split(path)
    process = _of_process()
    store = process.store(root)
    try:
        return process.run(function(store, key))
    except Exception as error:
        raise _os_error(error, path) from error


def _os_error(error: Exception, path: str) -> OSError:
    """Returns an error of obstore as one of the operating system."""
    if isinstance(error, OSError):
        return error
    if type(error).__name__ == "PreconditionError":
        return ChangedObjectError(errno.ESTALE, "it has another etag")
    text = str(error).partition("\n")[0].strip()
    codes = {
        "NotFoundError": (errno.ENOENT, "no such object, or no such bucket"),
        "PermissionDeniedError": (errno.EACCES, "the store denies the access"),
        "UnauthenticatedError": (errno.EACCES, "the store does not accept the credentials"),
    }
    code, problem = codes.get(type(error).__name__, (errno.EIO, text or type(error).__name__))
    return OSError(code, problem, path)


def _split(path: str) -> tuple[str, str]:
    """Returns the root of a store, such as `gs://bucket`, and the key of an object in it."""
    scheme, _, rest = path.partition("://")
    if scheme not in SCHEMES:
        available = ", ".join(f"{one}://" for one in SCHEMES[:4])
        raise ConfigError(f"{path!r}: unknown scheme {scheme}://; available: {available}")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _open_store(root: str) -> Any:
    if obstore is None:
        raise MissingExtraError("object stores need obstore: pip install 'infeed[stores]'")
    options = {"client_options": _CLIENT, "retry_config": _RETRIES}
    if root == "file://":
        return stores.LocalStore("/")
    if root.startswith("http"):
        return stores.HTTPStore.from_url(root, **options)
    return stores.from_url(root, **options)


def _stamp(meta: Any) -> FileStamp:
    modified = int(meta["last_modified"].timestamp() * 1e9)
    etag = meta.get("e_tag") or ""
    return FileStamp(meta["size"], 0 if etag else modified, etag)
