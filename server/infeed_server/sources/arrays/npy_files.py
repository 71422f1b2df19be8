"""Arrays in .npy and .npz files, memory-mapped where the file allows it."""

from __future__ import annotations

import hashlib
import io
import math
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array
from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.files import (
    NUMPY_FILE_ERRORS,
    FileStamp,
    absolute_path,
    changed_error,
    is_remote,
    read_bytes,
    remembered,
)
from infeed_server.sources.storage_faults import error_text

_MAX_HASHED_ALWAYS = 64 << 20
"""Bytes of a file that is hashed at each start. The hash of a larger one is remembered."""
_HASH_BLOCK = 8 << 20
"""Bytes hashed between two calls of the progress callback."""


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


def open_npy(path: str, progress: ProgressCallback | None = None) -> StoredArray:
    """Opens the array of a .npy file; hashes its content. Raises `SourceError`."""
    try:
        if is_remote(path):
            blob = read_bytes(path)
            array = np.load(io.BytesIO(blob), allow_pickle=False)
            return StoredArray(array, path, hashlib.sha256(blob).hexdigest())
        with _MappedFile(path) as mapped:
            array = mapped.array(0)
            digest = mapped.remembered("npy", partial(mapped.digest, progress))
            return StoredArray(array, path, digest, mapped.check)
    except NUMPY_FILE_ERRORS as error:
        raise _unreadable(path, error) from error


def open_npz(path: str, progress: ProgressCallback | None = None) -> dict[str, StoredArray]:
    """Opens the arrays of a .npz file by name: maps uncompressed ones, loads compressed ones.

    Verifies their CRCs. Raises `SourceError`.
    """
    try:
        if is_remote(path):
            return _open_members(path, io.BytesIO(read_bytes(path)), None)
        with _MappedFile(path) as mapped:
            arrays = _open_members(path, mapped.file, mapped)
            mapped.remembered("npz", partial(_verify_members, mapped, progress))
            return arrays
    except NUMPY_FILE_ERRORS as error:
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


def _verify_members(mapped: _MappedFile, progress: ProgressCallback | None) -> str:
    """Verifies the CRCs of the mapped members. Raises `ValueError` with the damaged one."""
    with zipfile.ZipFile(mapped.file) as archive:
        members = archive.infolist()
    stored = [member for member in members if member.compress_type == zipfile.ZIP_STORED]
    for info in stored:
        crc = 0
        for block in mapped.blocks(mapped.data_offset(info), info.file_size, progress):
            crc = zlib.crc32(block, crc)
        if crc != info.CRC:
            raise ValueError(
                f"its member {info.filename!r} is damaged: its CRC is {crc:08x}, and should be "
                f"{info.CRC:08x}"
            )
    return "verified"


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
            raise changed_error(self.path, "it was opened")

    def data_offset(self, info: zipfile.ZipInfo) -> int:
        """Returns the offset of a stored member's data, after its header of variable length."""
        name, extra = struct.unpack_from("<HH", self._map, info.header_offset + 26)
        return int(info.header_offset + 30 + name + extra)

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

    def remembered(self, purpose: str, compute: Callable[[], str]) -> str:
        """Returns what is computed of the whole file; remembers the result of a large one."""
        if self._stamp.size <= _MAX_HASHED_ALWAYS:
            return compute()
        path = absolute_path(self.path)
        stamp = f"{self._stamp.size} {self._stamp.mtime_ns}"

        def checked() -> str:
            result = compute()
            self.check()
            return result

        return remembered(f"{purpose} {path}", stamp, self._stamp.mtime_ns, checked)

    def digest(self, progress: ProgressCallback | None = None) -> str:
        """Returns a hash of the file."""
        digest = hashlib.sha256()
        for block in self.blocks(0, self._stamp.size, progress):
            digest.update(block)
        return digest.hexdigest()

    def blocks(
        self, begin: int, size: int, progress: ProgressCallback | None
    ) -> Iterator[memoryview]:
        """Yields a part of the file in blocks; reports the progress through a large file."""
        with memoryview(self._map) as content:
            for start in range(begin, begin + size, _HASH_BLOCK):
                end = min(start + _HASH_BLOCK, begin + size)
                with content[start:end] as block:
                    yield block
                if progress is not None and self._stamp.size > _MAX_HASHED_ALWAYS:
                    progress(end, self._stamp.size)


def _unreadable(path: str, error: Exception) -> SourceError:
    kind = "npz" if path.endswith(".npz") else "npy"
    problem = "its header is damaged" if isinstance(error, TokenError) else error_text(error)
    return SourceError(f"cannot read {path!r} as .{kind}: {problem}", file=path)
