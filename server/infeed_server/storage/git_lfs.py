"""Git LFS pointers: small text files in place of files that a clone has not fetched."""

from __future__ import annotations

from infeed.shared.errors import InfeedError
from infeed_server.storage.files import read_bytes, stat_file

_BEGINNING = b"version https://git-lfs.github.com/spec/"
_MAX_BYTES = 1024
"""Maximum bytes of a pointer, by its specification."""


def name_pointer(error: InfeedError) -> None:
    """Replaces the problem in an error about a pointer file: any reader's complaint about its bytes
    misleads."""
    file = error.metadata.get("file", "")
    if not file or not _is_pointer(file):
        return
    error.problem = (
        f"{file} is a Git LFS pointer, not the file itself; run git lfs pull in its repository"
    )
    if "sample_id" in error.metadata:
        error.sample = int(error.metadata["sample_id"])
        error.problem = f"cannot be read: {error.problem}"


def _is_pointer(path: str) -> bool:
    try:
        return stat_file(path).size < _MAX_BYTES and read_bytes(path).startswith(_BEGINNING)
    except (OSError, InfeedError):
        return False
