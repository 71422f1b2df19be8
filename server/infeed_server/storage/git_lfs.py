"""Pointers of Git LFS: small text files that stand for files which a clone has not fetched."""

from __future__ import annotations

from infeed.shared.errors import InfeedError
from infeed_server.storage.files import read_bytes, stat_file

_BEGINNING = b"version https://git-lfs.github.com/spec/"
_MAX_BYTES = 1024
"""No pointer is larger, as its specification states."""


def name_pointer(error: InfeedError) -> None:
    """Replaces the problem of an error about a file that is a pointer: what any reader says of its
    bytes misleads."""
    file = error.metadata.get("file", "")
    if not file or not _is_pointer(file):
        return
    error.problem = (
        f"{file} is a pointer of Git LFS, not the file itself; run git lfs pull in its repository"
    )
    if "sample_id" in error.metadata:
        error.sample = int(error.metadata["sample_id"])
        error.problem = f"cannot be read: {error.problem}"


def _is_pointer(path: str) -> bool:
    try:
        return stat_file(path).size < _MAX_BYTES and read_bytes(path).startswith(_BEGINNING)
    except (OSError, InfeedError):
        return False
