"""Pointers of Git LFS: small text files that stand for files which a clone has not fetched."""

from __future__ import annotations

from infeed.shared.errors import InfeedError
from infeed_server.storage.files import read_bytes, stat_file

_BEGINNING = b"version https://git-lfs.github.com/spec/"
_MAX_BYTES = 1024
"""No pointer is larger, as its specification states."""


def name_pointer(error: InfeedError) -> None:
    """Replaces the message of an error about a file that is a pointer: what any reader says of its
    bytes misleads."""
    file, sample = error.metadata.get("file", ""), error.metadata.get("sample_id")
    if file and _is_pointer(file):
        subject = "" if sample is None else f"sample {sample}: "
        error.message = (
            f"{subject}{file} is a pointer of Git LFS, not the file itself; run git lfs pull in "
            "its repository"
        )
        error.args = (error.message,)


def _is_pointer(path: str) -> bool:
    try:
        return stat_file(path).size < _MAX_BYTES and read_bytes(path).startswith(_BEGINNING)
    except (OSError, InfeedError):
        return False
