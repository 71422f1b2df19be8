"""Problems of a user's files, in words."""

from __future__ import annotations


def problem_of(error: OSError | UnicodeDecodeError) -> str:
    """Returns the reason alone: the command names the file itself."""
    if isinstance(error, UnicodeDecodeError):
        return "not a text file"
    return (error.strerror or str(error)).lower()
