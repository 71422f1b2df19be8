"""Disk cache for the indexes of data files: validated when loaded, replaced atomically.

An index is in the folder `directory` if given, else beside the data, else in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from infeed_server.config.cache_dir import user_cache_dir
from infeed_server.storage.files import (
    INDEX_SUFFIX,
    is_remote,
    read_bytes,
    reading,
    write_atomically,
)
from infeed_server.storage.stamp import FileStamp

_log = logging.getLogger(__name__)

Arrays = Mapping[str, npt.NDArray[Any]]
"""An index in its stored form."""

Index = TypeVar("Index")
"""The index of one file."""


def load_index(
    path: str,
    stamp: FileStamp,
    version: str,
    decode: Callable[[Arrays], Index | None],
    directory: str | None = None,
    *,
    checked: bool = False,
) -> Index | None:
    """Loads the index of this version of the file; None if there is no valid one. `version` is the
    format's, and `decode` returns None, or raises, for arrays that do not index the file. With
    `checked`, reads detect a record that the index does not match, so an index copied together with
    its object is valid despite another time and etag."""
    key = _key(version, stamp)
    loaded = (_load(str(one), key, decode) for one in _candidates(path, directory))
    found = next((index for index in loaded if index is not None), None)
    if found is None and checked and is_remote(path) and directory is None:
        return _load(path + INDEX_SUFFIX, key, decode, is_copy=True)
    return found


def packed_index(version: str, arrays: Arrays, size: int) -> bytes:
    """Returns the index of a file that is written once and complete. It is valid for the file's
    size at any time and in any store, since each read checks the record's CRC."""
    out = io.BytesIO()
    stored: dict[str, Any] = {"stamp": np.array([version, str(size)]), **arrays}
    np.savez(out, **stored)
    return out.getvalue()


def store_index(
    path: str, stamp: FileStamp, version: str, arrays: Arrays, directory: str | None = None
) -> None:
    """Stores an index, or logs that it cannot. Raises `SourceError` for the `directory`."""
    stored: dict[str, Any] = {"stamp": _key(version, stamp), **arrays}
    write = partial(np.savez, **stored)
    candidates = _candidates(path, directory)
    if directory is not None:
        with reading(str(candidates[0]), "write the record index"):
            write_atomically(candidates[0], write)
        return
    for candidate in candidates:
        with contextlib.suppress(OSError):
            write_atomically(candidate, write)
            return
    _log.warning(
        "the record index of %s cannot be stored in %s; every start rebuilds it",
        path,
        " nor in ".join(str(candidate.parent) for candidate in candidates),
    )


def _candidates(path: str, directory: str | None) -> list[Path]:
    """Returns the files that may hold the index of this data file, in order of preference."""
    name = Path(path.rpartition("/")[2] + INDEX_SUFFIX)
    # In a shared folder, a hash distinguishes data files with the same name.
    shared = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}-{name}"
    if directory is not None:
        return [Path(directory) / shared]
    beside = [] if is_remote(path) else [Path(path).parent / name]
    return [*beside, user_cache_dir() / shared]


def _key(version: str, stamp: FileStamp) -> npt.NDArray[np.str_]:
    return np.array([version, *map(str, stamp)])


def _load(
    path: str,
    key: npt.NDArray[np.str_],
    decode: Callable[[Arrays], Index | None],
    *,
    is_copy: bool = False,
) -> Index | None:
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as file:
            known = 2 if is_copy or len(file["stamp"]) == 2 else None  # version and size
            if not np.array_equal(file["stamp"][:known], key[:known]):
                return None
            return decode({name: file[name] for name in file.files})
    except Exception:  # noqa: BLE001 - NumPy and zipfile raise many kinds for a changed byte
        return None
