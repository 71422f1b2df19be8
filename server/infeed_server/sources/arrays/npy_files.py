"""Arrays in .npy files, read by row, and in .npz and small .npy files, in memory."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from stat import S_ISREG
from tokenize import TokenError

import numpy as np

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec import Array
from infeed_server.sources.base import Indices, ProgressCallback
from infeed_server.storage.faults import error_text, retry_faults
from infeed_server.storage.files import changed_error, is_remote, read_bytes, read_stamp
from infeed_server.storage.stamp import FileStamp

_HASH_BLOCK = 8 << 20
"""Bytes hashed between two calls of the progress callback."""
_MAX_LOADED = 64 << 20
"""Bytes of a .npy that is kept in memory: more save more calls of the system for small rows."""


@dataclass(frozen=True)
class StoredArray:
    """One array, its file, a text that identifies its content, and the mapping it is in, where its
    first row begins."""

    array: Array
    file: str
    content: str
    mapped: MappedFile | None = None
    begin: int = 0

    def rows(self, indices: Indices) -> Array:
        """Returns rows. Raises `SourceError` when a mapped file has changed."""
        if self.mapped is None:
            return self.array[indices]
        read = self._read if self.array.flags.c_contiguous else self.array.__getitem__
        self.mapped.check()  # a mapping of a file that became shorter must not be read
        rows: Array = retry_faults(partial(read, indices), self.file)
        self.mapped.check()
        return rows

    def _read(self, indices: Indices) -> Array:
        """Reads the file: to read its mapping ends the process once the file is shorter."""
        assert self.mapped is not None
        rows = np.empty((len(indices), *self.array.shape[1:]), self.array.dtype)
        size = self.array.nbytes // len(self.array)
        flat = rows.reshape(-1).view(np.uint8).data
        for row, offset in enumerate((self.begin + indices * size).tolist()):
            if os.preadv(self.mapped.fd, [flat[row * size : (row + 1) * size]], offset) != size:
                self.mapped.check()
                raise OSError(errno.EIO, f"row {indices[row]} cannot be read")
        return rows


class MappedFile:
    """A file whose array is mapped. It stays open, so that its changes are seen."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Without O_NONBLOCK, which files ignore, opening a pipe waits for its writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not S_ISREG(os.fstat(self.fd).st_mode):
            raise SourceError(f"cannot map {path!r}: it is not a regular file", file=path)
        self.stamp = FileStamp.of(os.fstat(self.fd))

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def check(self) -> None:
        """Raises `SourceError` when the file, and with it the mapped memory, has changed."""
        if FileStamp.of(os.fstat(self.fd)) != self.stamp:
            raise changed_error(self.path, "it was opened")


def open_npy(path: str, progress: ProgressCallback | None = None) -> StoredArray:
    """Opens the array of a .npy file; hashes its content. Raises `SourceError`."""
    with _reading(path, "npy"):
        if is_remote(path) or read_stamp(path).size <= _MAX_LOADED:
            blob = read_bytes(path)
            return StoredArray(_load(blob), path, hashlib.sha256(blob).hexdigest())
        mapped = MappedFile(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.memmap) or read_stamp(path) != mapped.stamp:
            raise ValueError("it holds several arrays, or is being written")
        digest = hashlib.sha256()
        with os.fdopen(mapped.fd, "rb", closefd=False) as file:
            while block := file.read(_HASH_BLOCK):
                digest.update(block)
                if progress is not None:
                    progress(file.tell(), mapped.stamp.size)
        mapped.check()
        return StoredArray(np.asarray(array), path, digest.hexdigest(), mapped, array.offset)


def open_npz(path: str) -> dict[str, StoredArray]:
    """Reads the arrays of a .npz by name, and verifies their CRCs. Raises `SourceError`."""
    with (
        _reading(path, "npz"),
        zipfile.ZipFile(io.BytesIO(read_bytes(path)) if is_remote(path) else path) as archive,
    ):
        arrays = {}
        for info in archive.infolist():
            name, dot, _ = info.filename.rpartition(".npy")
            if not dot:
                raise ValueError(f"its member {info.filename!r} is not an array")
            content = f"{info.CRC:08x} {info.file_size}"
            arrays[name] = StoredArray(_load(archive.read(info)), path, content)
        return arrays


def _load(blob: bytes) -> Array:
    array: Array = np.load(io.BytesIO(blob), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays")
    return array


@contextmanager
def _reading(path: str, kind: str) -> Iterator[None]:
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:  # NumPy and zipfile raise many for a byte that changed
        problem = "its header is damaged" if isinstance(error, TokenError) else error_text(error)
        raise SourceError(f"cannot read {path!r} as .{kind}: {problem}", file=path) from error
