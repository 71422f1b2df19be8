"""Versions of files and objects."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import NamedTuple


class FileStamp(NamedTuple):
    """The version of a file: its size in bytes and its modification time, or instead of the time an
    object's etag."""

    size: int
    mtime_ns: int
    etag: str = ""

    @classmethod
    def of(cls, stat: os.stat_result) -> FileStamp:
        return cls(stat.st_size, stat.st_mtime_ns)

    def difference(self, now: FileStamp) -> str:
        """Describes the difference to the file's present stamp, for an error."""
        how = "with another etag" if self.etag else "modified at another time"
        return f"it had {self.size} bytes and has {now.size}, {how}"


class StoredFile(NamedTuple):
    """A file or object, as it was listed."""

    path: str
    stamp: FileStamp


def hash_stamps(stamps: Iterable[FileStamp]) -> str:
    return hashlib.sha256(repr([*stamps]).encode()).hexdigest()
