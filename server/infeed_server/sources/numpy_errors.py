"""The errors of NumPy, zipfile and what they use, for a damaged or foreign .npy or .npz file."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib

NUMPY_FILE_ERRORS = (
    OSError, EOFError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile, zlib.error,
    lzma.LZMAError, struct.error, tokenize.TokenError, NotImplementedError, RuntimeError,
    MemoryError,
)  # fmt: skip
"""A byte that changed can be anywhere: in the archive's directory, in a compressed stream, in a
header, which NumPy parses as Python and allocates the stated size of. `RuntimeError` is an
encrypted member's."""
