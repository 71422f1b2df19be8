"""The index of a folder in Mosaic Streaming's format: index.json and the offsets of samples.

shard = samples n: uint32 · offsets: uint32[n + 1] · JSON · samples
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from infeed.shared.errors import SourceError
from infeed_formats.described import check_names, read_description, stamps_below
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile

INDEX_NAME = "index.json"

_TOGETHER = 256
"""Shards whose offsets are read concurrently."""


class ShardFile(BaseModel):
    """One file of a shard."""

    basename: str
    bytes: int
    hashes: dict[str, str] = {}


class Shard(BaseModel):
    """A shard as described in index.json."""

    format: str
    version: int
    column_names: list[str] = Field(min_length=1)
    column_encodings: list[str]
    column_sizes: list[int | None]
    samples: int = Field(ge=0, lt=1 << 30)
    compression: str | None = None
    raw_data: ShardFile
    zip_data: ShardFile | None = None

    @property
    def columns(self) -> tuple[list[str], list[str], list[int | None]]:
        return self.column_names, self.column_encodings, self.column_sizes


class _Index(BaseModel):
    version: int
    shards: list[Shard]


def read_index(root: str) -> list[Shard]:
    """Returns the shards of a folder. Raises `SourceError`."""
    path = f"{root.rstrip('/')}/{INDEX_NAME}"
    index = read_description(path, _Index, "Mosaic Streaming")
    shards = [shard for shard in index.shards if shard.samples]
    if not shards:
        raise _wrong(path, "has no samples")
    for shard in shards:
        name = shard.raw_data.basename
        if (shard.format, shard.version, index.version) != ("mds", 2, 2):
            problem = f"{name} has the format {shard.format!r}, version {shard.version}"
            raise _wrong(path, f"{problem}; only 'mds', version 2, is known")
        if shard.columns != shards[0].columns:
            other = shards[0].raw_data.basename
            raise _wrong(path, f"{name} and {other} differ in columns; serve them as two data sets")
        columns, encodings, sizes = shard.columns
        if not len(set(columns)) == len(columns) == len(encodings) == len(sizes):
            raise _wrong(path, f"{name} lacks an encoding or size for each column; write it again")
    check_names(path, [shard.raw_data.basename for shard in shards])
    return shards


def list_shards(root: str, shards: list[Shard]) -> list[StoredFile]:
    """Returns the files of shards. Raises `SourceError` if their sizes differ from index.json."""
    stamp_of = stamps_below(root)
    files = []
    for shard in shards:
        path = f"{root.rstrip('/')}/{shard.raw_data.basename}"
        try:
            file = StoredFile(path, stamp_of(path))
        except SourceError as error:
            if shard.zip_data is None:
                raise
            raise SourceError(
                f"{path} is missing: there is only {shard.zip_data.basename}, compressed with "
                f"{shard.compression}, without random access; decompress it to "
                f"{shard.raw_data.basename} beside it, or write the data with compression=None",
                file=path,
            ) from error
        if file.stamp.size != shard.raw_data.bytes:
            problem = f"has {file.stamp.size} bytes, but {shard.raw_data.bytes} in {INDEX_NAME}"
            raise _wrong(path, f"{problem}; copy or write it again")
        files.append(file)
    return files


def read_offsets(
    files: RangeReader, shards: Sequence[Shard], on_shards: Callable[[int], None]
) -> list[npt.NDArray[np.uint32]]:
    """Reads the offsets and the end of each shard's samples, one range per shard. Calls `on_shards`
    with the number of shards done. Raises `SourceError`."""
    counts = np.array([shard.samples for shard in shards], np.int64)
    sizes = 4 * (counts + 2)
    bounds = []
    for number, shard in enumerate(shards):
        if sizes[number] > shard.raw_data.bytes:
            raise _wrong(files.files[number].path, f"is too small for {shard.samples} samples")
    for begin in range(0, len(shards), _TOGETHER):
        numbers = np.arange(begin, min(begin + _TOGETHER, len(shards)))
        heads = files.read(numbers, np.zeros_like(numbers), sizes[numbers])
        for number, head in zip(numbers.tolist(), heads, strict=True):
            bounds.append(_bounds(head, shards[number], files.files[number].path))
        on_shards(begin + len(numbers))
    return bounds


def _bounds(head: bytes, shard: Shard, path: str) -> npt.NDArray[np.uint32]:
    count, *_ = numbers = np.frombuffer(head, "<u4")
    if count != shard.samples:
        raise _wrong(path, f"has {count} samples, but {shard.samples} in {INDEX_NAME}")
    bounds = numbers[1:].astype(np.uint32)
    if (
        bounds[0] < len(head)
        or bounds[-1] != shard.raw_data.bytes
        or (np.diff(bounds.astype(np.int64)) <= 0).any()
    ):
        raise _wrong(path, "is damaged: its sample offsets are not in order; copy it again")
    return bounds


def _wrong(path: str, problem: str) -> SourceError:
    return SourceError(f"{path} {problem}", file=path)
