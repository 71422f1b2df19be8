"""Arrays in .npy and .npz files, memory-mapped where the file allows it."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import InfeedError, SourceError
from infeed.shared.spec import Array
from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.files import (
    FileStamp,
    changed_error,
    is_remote,
    read_bytes,
)
from infeed_server.sources.storage_faults import error_text

_HASH_BLOCK = 8 << 20
"""Bytes hashed between two calls of the progress callback."""


@dataclass(frozen=True)
class StoredArray:
    """One array, its file, a text that identifies its content, and the mapping it is in."""

    array: Array
    file: str
    content: str
    mapped: MappedFile | None = None


def open_npy(path: str, progress: ProgressCallback | None = None) -> StoredArray:
    """Opens the array of a .npy file; hashes its content. Raises `SourceError`."""
    with _reading(path, "npy"):
        if is_remote(path):
            blob = read_bytes(path)
            return StoredArray(_load(blob), path, hashlib.sha256(blob).hexdigest())
        mapped = MappedFile(path)
        array = mapped.array(0)
        mapped.file.seek(0)
        digest = mapped.digest([mapped.file], progress)
        mapped.check()
        return StoredArray(array, path, digest, mapped)


def open_npz(path: str, progress: ProgressCallback | None = None) -> dict[str, StoredArray]:
    """Opens the arrays of a .npz by name, and verifies their CRCs. Raises `SourceError`."""
    with _reading(path, "npz"):
        mapped = None if is_remote(path) else MappedFile(path)
        file: IO[bytes] = mapped.file if mapped else io.BytesIO(read_bytes(path))
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            arrays = {
                info.filename.removesuffix(".npy"): _open_member(path, archive, info, mapped)
                for info in members
            }
            if mapped:
                stored = [info for info in members if info.compress_type == zipfile.ZIP_STORED]
                opened = map(archive.open, stored)  # zipfile verifies what is read to its end
                mapped.digest(opened, progress)
        return arrays


class MappedFile:
    """A memory-mapped file. It stays mapped as long as an array of it is in use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.file = os.fdopen(self._fd, "rb", closefd=False)
        self._stamp = FileStamp.of(os.fstat(self._fd))
        self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def check(self) -> None:
        """Raises `SourceError` when the file, and with it the mapped memory, has changed."""
        if FileStamp.of(os.fstat(self._fd)) != self._stamp:
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
        begin, order = self.file.tell(), "F" if fortran else "C"
        try:
            array: Array = np.ndarray(shape, dtype, self._map, begin, order=order)  # type: ignore[arg-type]
        except TypeError:
            raise ValueError(f"it ends inside the data of {shape} {dtype} values") from None
        return array

    def digest(self, files: Iterable[IO[bytes]], progress: ProgressCallback | None) -> str:
        """Returns a hash of files that are read to their ends, which verifies members of a ZIP."""
        digest, done = hashlib.sha256(), 0
        for file in files:
            while block := file.read(_HASH_BLOCK):
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(done, self._stamp.size)
        return digest.hexdigest()


def _open_member(
    path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, mapped: MappedFile | None
) -> StoredArray:
    if not info.filename.endswith(".npy"):
        raise SourceError(f"{path}: its member {info.filename!r} is not an array", file=path)
    content = f"{info.CRC:08x} {info.file_size}"
    with archive.open(info) as member:  # it raises for a member that is encrypted
        if mapped is None or info.compress_type != zipfile.ZIP_STORED:
            return StoredArray(_load(member.read()), path, content)
    return StoredArray(mapped.array(mapped.data_offset(info)), path, content, mapped)


def _load(blob: bytes) -> Any:
    return np.load(io.BytesIO(blob), allow_pickle=False)


@contextmanager
def _reading(path: str, kind: str) -> Iterator[None]:
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:  # NumPy and zipfile raise many for a byte that changed
        problem = "its header is damaged" if isinstance(error, TokenError) else error_text(error)
        raise SourceError(f"cannot read {path!r} as .{kind}: {problem}", file=path) from error
