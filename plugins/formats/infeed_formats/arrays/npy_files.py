"""NumPy files: .npy files read by row, and .npz and small .npy files kept in memory."""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from mmap import ACCESS_READ, mmap
from stat import S_ISREG

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec import Array
from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.places import Indices
from infeed_server.storage.faults import error_text, retry_faults
from infeed_server.storage.files import changed_error, is_remote, read_bytes, read_stamp
from infeed_server.storage.stamp import FileStamp

_HASH_BLOCK = 8 << 20
"""Bytes hashed between two calls of the progress callback."""
_MAX_LOADED = 64 << 20
"""Maximum bytes of a .npy kept in memory; a larger limit saves system calls for small rows."""
_MAX_HEADER = 16 << 10
"""Bytes at the start of a .npy that hold its header; NumPy refuses one over 10,000 bytes."""


@dataclass(frozen=True)
class StoredArray:
    """One array: its file, a text that identifies its content, its mapping, and the offset of its
    first row."""

    array: Array
    file: str
    content: str
    mapped: MappedFile | None = None
    begin: int = 0

    def rows(self, indices: Indices) -> Array:
        """Returns rows. Raises `SourceError` if a mapped file has changed."""
        if self.mapped is None:
            return self.array[indices]
        read = self._read if self.array.flags.c_contiguous else self.array.__getitem__
        self.mapped.check()  # reading the mapping of a shortened file would end the process
        rows: Array = retry_faults(partial(read, indices), self.file)
        self.mapped.check()
        return rows

    def _read(self, indices: Indices) -> Array:
        """Reads from the file, as reading the mapping of a shortened file would end the process."""
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
    """A file whose array is mapped. It stays open to detect changes."""

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
        """Raises `SourceError` if the file, and so the mapped memory, has changed."""
        if FileStamp.of(os.fstat(self.fd)) != self.stamp:
            raise changed_error(self.path)


def parse_npy(content: bytes) -> Array:
    """Returns the array of a .npy, without a copy. Raises `ValueError`."""
    return _view(content[:_MAX_HEADER], content, len(content))


def _view(head: bytes, content: bytes | mmap, size: int) -> Array:
    """Returns the array in the `size` bytes of a .npy, which begin with `head`."""
    if not head.startswith(npy.MAGIC_PREFIX):
        raise ValueError("was not written by np.save; pickled objects are not read")
    file = io.BytesIO(head)
    read = npy.read_array_header_2_0
    if npy.read_magic(file) == (1, 0):
        read = npy.read_array_header_1_0
    try:
        shape, is_fortran, dtype = read(file)
    except Exception as error:  # NumPy raises various errors for a changed byte
        text = head[8:200].decode("latin-1").partition("{")[2].strip()
        raise ValueError(f"has a header that cannot be read: {{{text}; write it again") from error
    if dtype.hasobject:
        raise ValueError("has pickled objects, which are not read; save numbers, text or bytes")
    begin, length = file.tell(), math.prod(shape) * dtype.itemsize
    if begin + length != size:
        raise ValueError(
            f"has {size - begin} bytes after its header, not {length}: it is truncated or has "
            "several arrays; save each in its own file, or all with np.savez"
        )
    array: Array = np.ndarray(shape, dtype, content, begin, order="F" if is_fortran else "C")
    return array


def open_npy(path: str, progress: ProgressCallback | None = None) -> StoredArray:
    """Opens the array of a .npy file and hashes its content. Raises `SourceError`."""
    with _reading(path, "npy"):
        if is_remote(path) or read_stamp(path).size <= _MAX_LOADED:
            blob = read_bytes(path)
            return StoredArray(parse_npy(blob), path, hashlib.sha256(blob).hexdigest())
        mapped = MappedFile(path)
        digest = hashlib.sha256()
        with os.fdopen(mapped.fd, "rb", closefd=False) as file:
            while block := file.read(_HASH_BLOCK):
                digest.update(block)
                if progress is not None:
                    progress(file.tell(), mapped.stamp.size)
        mapped.check()
        size, head = mapped.stamp.size, os.pread(mapped.fd, _MAX_HEADER, 0)
        array = _view(head, mmap(mapped.fd, size, access=ACCESS_READ), size)
        return StoredArray(array, path, digest.hexdigest(), mapped, size - array.nbytes)


def open_npz(path: str) -> dict[str, StoredArray]:
    """Reads the arrays of a .npz by name and verifies their CRCs. Raises `SourceError`."""
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
            arrays[name] = StoredArray(parse_npy(archive.read(info)), path, content)
        return arrays


@contextmanager
def _reading(path: str, kind: str) -> Iterator[None]:
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:  # zipfile raises various errors for a changed byte
        text = f"cannot read {path!r} as .{kind}: {error_text(error)}"
        raise SourceError(text, file=path) from error
