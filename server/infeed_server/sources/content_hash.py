"""Content hashes of large data, computed once and remembered by stamp in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable

from infeed_server.sources.files import user_cache_dir, write_atomically

_SETTLED_SECONDS = 2.0
"""Age of data whose hash is remembered. Younger data may still be written to without another
modification time, on file systems with a coarse clock."""


def remembered(data: str, stamp: str, newest_ns: int, compute: Callable[[], str]) -> str:
    """Returns `compute()`, from the cache if `data` had the same stamp before.

    `data` is a path and the purpose of the hash, `newest_ns` the last modification time in it.
    """
    key = hashlib.sha256(data.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    file = user_cache_dir() / "hashes" / f"{key}.json"
    try:
        entry = json.loads(file.read_bytes())
        if entry["stamp"] == stamp and isinstance(entry["hash"], str):
            known: str = entry["hash"]
            return known
    except (OSError, ValueError, KeyError, TypeError):
        pass
    computed = compute()
    if time.time() - newest_ns / 1e9 > _SETTLED_SECONDS:
        # Without a writable cache, the data is hashed at every start.
        content = json.dumps({"data": ascii(data), "stamp": stamp, "hash": computed}).encode()
        with contextlib.suppress(OSError):
            write_atomically(file, lambda out: out.write(content))
    return computed
