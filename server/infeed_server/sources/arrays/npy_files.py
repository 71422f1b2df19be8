"""Arrays in .npy and .npz files, memory-mapped where the file allows it."""

from __future__ import annotations

import hashlib
import io
import math
import mmap
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from infeed.errors import SourceError
from infeed.spec import Array
from infeed_server.sources.files import FileStamp, error_text, is_remote, read_bytes

_MAX_HASHED = 64 << 20
"""Bytes of a file that its hash covers. A larger file is sampled in blocks."""
_HASH_BLOCK = 1 << 20
"""Bytes of one block of a sampled file."""


def _never_changed() -> None:
    """Does nothing: an array in memory has no file that could change."""


@dataclass(frozen=True)
class StoredArray:
    """One array, its file, and a text that identifies its content.

    `check` raises `SourceError` when the mapped file has changed.
    """

    array: Array
    file: str
    content: str
    check: Callable[[], None] = _never_changed


def open_npy(path: str) -> StoredArray:
    """Opens the array of a .npy file. Raises `SourceError`."""
    try:
        if is_remote(path):
            blob = read_bytes(path)
            array = np.load(io.BytesIO(blob), allow_pickle=False)
            return StoredArray(array, path, hashlib.sha256(blob).hexdigest())
        with _MappedFile(path) as mapped:
            return StoredArray(mapped.array(0), path, mapped.digest(), mapped.check)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def open_npz(path: str) -> dict[str, StoredArray]:
    """Opens the arrays of a .npz file by name: maps uncompressed ones, loads compressed ones.

    Raises `SourceError`.
    """
    try:
        if is_remote(path):
            return _open_members(path, io.BytesIO(read_bytes(path)), None)
        with _MappedFile(path) as mapped:
            return _open_members(path, mapped.file, mapped)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _unreadable(path, error) from error


def _open_members(path: str, file: Any, mapped: _MappedFile | None) -> dict[str, StoredArray]:
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise SourceError(
                    f"{path}: its member {info.filename!r} is not an array", file=path
                )
            if mapped is not None and info.compress_type == zipfile.ZIP_STORED:
                array, check = mapped.array(mapped.data_offset(info)), mapped.check
            else:
                # zipfile verifies the CRC of a member that is read to its end.
                blob = archive.read(info)
                array, check = np.load(io.BytesIO(blob), allow_pickle=False), _never_changed
            content = f"{info.CRC:08x} {info.file_size}"
            arrays[info.filename.removesuffix(".npy")] = StoredArray(array, path, content, check)
    return arrays


class _MappedFile:
    """A memory-mapped file. It stays mapped as long as an array of it is in use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._stamp = self._current_stamp()
        self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> _MappedFile:
        self.file: BinaryIO = os.fdopen(os.dup(self._fd), "rb")
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def _current_stamp(self) -> FileStamp:
        stat = os.fstat(self._fd)
        return FileStamp(stat.st_size, stat.st_mtime_ns)

    def check(self) -> None:
        """Raises `SourceError` when the file, and with it the mapped memory, has changed."""
        if self._current_stamp() != self._stamp:
            raise SourceError(
                f"{self.path} changed since it was opened; restart the server", file=self.path
            )

    def data_offset(self, info: zipfile.ZipInfo) -> int:
        """Returns the offset of a stored member's data, after its header of variable length."""
        if info.flag_bits & 1:
            raise ValueError(f"its member {info.filename!r} is encrypted")
        start = info.header_offset
        name, extra = struct.unpack_from("<HH", self._map, start + 26)
        return int(start + 30 + name + extra)

    def array(self, offset: int) -> Array:
        """Returns the array of the .npy that begins at `offset`, without copying it."""
        self.file.seek(offset)
        version = npy.read_magic(self.file)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in read_header:
            # Version 3 is for field names beyond Latin-1, and arrays with field names are refused.
            raise ValueError(f"it has the .npy version {version}, which is not for plain arrays")
        shape, fortran, dtype = read_header[version](self.file)
        if dtype.hasobject:
            raise ValueError(
                "it holds Python objects, which are not loaded; save it with a dtype of numbers "
                "or strings"
            )
        begin, size = self.file.tell(), dtype.itemsize * math.prod(shape)
        if begin + size > self._stamp.size:
            raise ValueError(f"it ends inside the data, which takes {size} bytes")
        array: Array = np.ndarray(shape, dtype, self._map, begin, order="F" if fortran else "C")
        return array

    def digest(self) -> str:
        """Returns a hash of the file; of a large one, of blocks evenly spread over it."""
        size = self._stamp.size
        digest = hashlib.sha256(str(size).encode())
        if size <= _MAX_HASHED:
            digest.update(self._map)
        else:
            blocks = _MAX_HASHED // _HASH_BLOCK
            for number in range(blocks):
                start = (size - _HASH_BLOCK) * number // (blocks - 1)
                digest.update(self._map[start : start + _HASH_BLOCK])
        return digest.hexdigest()


def _unreadable(path: str, error: Exception) -> SourceError:
    kind = "npz" if path.endswith(".npz") else "npy"
    return SourceError(f"cannot read {path!r} as .{kind}: {error_text(error)}", file=path)
