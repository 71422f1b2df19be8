"""Arrays that lie in .npy and .npz files, mapped into memory where the file allows it."""

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
from infeed_server.sources.files import Stamp, is_remote, read_bytes, why

_WHOLE_HASH = 64 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Stored:
    """One array, where it came from, and a text that differs when its content does.

    `check` raises `SourceError` when the file that is mapped has changed.
    """

    array: Array
    file: str
    content: str
    check: Callable[[], None]


def open_npy(path: str) -> Stored:
    """The array of a .npy file. Raises `SourceError`."""
    try:
        if is_remote(path):
            blob = read_bytes(path)
            array = np.load(io.BytesIO(blob), allow_pickle=False)
            return Stored(array, path, hashlib.sha256(blob).hexdigest(), _nothing)
        with _Mapping(path) as mapping:
            return Stored(mapping.array(0), path, mapping.digest(), mapping.check)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def open_npz(path: str) -> dict[str, Stored]:
    """The arrays of a .npz file by name: those stored as they are mapped, compressed ones loaded.

    Raises `SourceError`.
    """
    try:
        if is_remote(path):
            return _open_members(path, io.BytesIO(read_bytes(path)), None)
        with _Mapping(path) as mapping:
            return _open_members(path, mapping.file, mapping)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _unreadable(path, error) from error


def _open_members(path: str, file: Any, mapping: _Mapping | None) -> dict[str, Stored]:
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise SourceError(f"{path}: its member {info.filename!r} is no array", file=path)
            if mapping is not None and info.compress_type == zipfile.ZIP_STORED:
                array, check = mapping.array(mapping.data_offset(info)), mapping.check
            else:
                # zipfile checks the CRC of what it reads to the end, as this does.
                blob = archive.read(info)
                array, check = np.load(io.BytesIO(blob), allow_pickle=False), _nothing
            content = f"{info.CRC:08x} {info.file_size}"
            arrays[info.filename.removesuffix(".npy")] = Stored(array, path, content, check)
    return arrays


class _Mapping:
    """A file mapped for reading. It stays mapped as long as an array of it is in use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._stamp = self._now()
        self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> _Mapping:
        self.file: BinaryIO = os.fdopen(os.dup(self._fd), "rb")
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def _now(self) -> Stamp:
        about = os.fstat(self._fd)
        return Stamp(about.st_size, about.st_mtime_ns)

    def check(self) -> None:
        """Raises `SourceError` when the file was written to: its map is not what it was."""
        if self._now() != self._stamp:
            raise SourceError(
                f"{self.path} changed since it was opened; restart the server", file=self.path
            )

    def data_offset(self, info: zipfile.ZipInfo) -> int:
        """Where a stored member's data begins: behind its local header, whose length varies."""
        if info.flag_bits & 1:
            raise ValueError(f"its member {info.filename!r} is encrypted")
        start = info.header_offset
        name, extra = struct.unpack_from("<HH", self._map, start + 26)
        return int(start + 30 + name + extra)

    def array(self, offset: int) -> Array:
        """The array of the .npy that begins at `offset`."""
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
        """A hash of the file: of all of it, or where it is large of blocks spread over it."""
        size = self._stamp.size
        digest = hashlib.sha256(str(size).encode())
        if size <= _WHOLE_HASH:
            digest.update(self._map)
        else:
            blocks = _WHOLE_HASH // _BLOCK
            for number in range(blocks):
                start = (size - _BLOCK) * number // (blocks - 1)
                digest.update(self._map[start : start + _BLOCK])
        return digest.hexdigest()


def _nothing() -> None:
    """The check of an array that is in memory."""


def _unreadable(path: str, error: Exception) -> SourceError:
    kind = "npz" if path.endswith(".npz") else "npy"
    return SourceError(f"cannot read {path!r} as .{kind}: {why(error)}", file=path)
