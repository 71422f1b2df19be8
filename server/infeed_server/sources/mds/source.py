"""The `mds` source: samples of shards that Mosaic Streaming wrote, read by index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import tensorflow as tf
from pydantic import BeforeValidator, Field

from infeed.shared.errors import SampleError, SourceError
from infeed.shared.spec.dtypes import BYTES
from infeed_server.config.model import Finding, as_tuple, did_you_mean
from infeed_server.sources.base import (
    Columns,
    IndexedDefinition,
    Indices,
    ProgressCallback,
    Provenance,
    Sample,
    Source,
    find_missing,
)
from infeed_server.sources.mds.encodings import ColumnField, decoder, infer_field
from infeed_server.sources.mds.index import (
    INDEX_NAME,
    Shard,
    list_shards,
    read_index,
    read_offsets,
)
from infeed_server.storage.files import PathString, absolute_path, is_remote
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile

_MAX_EXAMPLES = 8
"""Samples that are read at start, for the shapes of arrays."""


class MdsSource(IndexedDefinition):
    """Samples of Mosaic Streaming's format (MDS), in the order of index.json."""

    kind: ClassVar[str] = "mds"

    mds: PathString
    """Folder that has `index.json`; the shards are below it, not compressed."""
    fields: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)] | None = None
    """Columns to serve, each a field; by default all."""

    def check(self) -> Iterator[Finding]:
        if not is_remote(self.mds):
            yield from find_missing(("mds",), partial(read_index, self.mds))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> MdsReader:
        """Reads the index and the offsets of all shards. Raises `SourceError`."""
        root = absolute_path(self.mds)
        shards = read_index(root)
        return MdsReader(shards, list_shards(root, shards), self.fields, progress)


class MdsReader(Source):
    """Reads samples by index, each in one range. Thread-safe."""

    def __init__(
        self,
        shards: Sequence[Shard],
        files: Sequence[StoredFile],
        fields: Sequence[str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        names, encodings, self._sizes = shards[0].columns
        self.shards, self.files = shards, files
        folder = files[0].path.removesuffix(shards[0].raw_data.basename)
        for name in fields or ():
            if name not in names:
                raise SourceError(
                    f"{folder}{INDEX_NAME} has no column {name!r}{did_you_mean(name, names)}; "
                    f"available: {', '.join(names)}",
                    file=folder + INDEX_NAME,
                )
        chosen = [number for number, name in enumerate(names) if fields is None or name in fields]
        decoders = {n: decoder(names[n], encodings[n], self._sizes[n]) for n in chosen}
        self._ranges = RangeReader(files, "the server opened it")
        ends = np.cumsum([file.stamp.size for file in files]).tolist()

        def report(done: int) -> None:
            if progress is not None:
                progress(ends[done - 1], ends[-1])

        self._first, self._bounds = read_offsets(self._ranges, shards, report)
        # A shard has one offset more than samples.
        self._shift = self._first + np.arange(len(self._first))
        examples = self._examples()
        self._fields: dict[int, ColumnField] = {}
        for number, decode in decoders.items():
            try:
                values = [sample[number] for sample in examples]
                self._fields[number] = infer_field(decode, values)
            except ValueError as error:
                raise SourceError(
                    f"{folder}{INDEX_NAME}: the column {names[number]!r} has no type: {error}; "
                    "name the other columns in fields",
                    file=folder + INDEX_NAME,
                ) from None
        self._names = names
        self.specs = {names[number]: field.spec for number, field in self._fields.items()}
        """The fields; of `columns`, those whose size varies are byte strings."""
        self.columns = {
            names[number]: tf.TensorSpec((), tf.string) if field.varies else field.spec
            for number, field in self._fields.items()
        }
        self.parsed = not any(field.varies for field in self._fields.values())
        self.identity = self._hash()
        self.stamp = hashlib.sha256(repr([file.stamp for file in files]).encode()).hexdigest()

    def __len__(self) -> int:
        return int(self._first[-1])

    def provenance(self, index: int) -> Provenance:
        shards, begins, _ = self._places(np.array([index]))
        return Provenance(self.files[int(shards[0])].path, int(begins[0]))

    def read(self, indices: Indices) -> Columns:
        """Returns the values of samples. Raises `SampleError` for the first whose bytes are no
        sample, and `SourceError` for a file that cannot be read, or changed."""
        rows: dict[int, list[bytes]] = {number: [] for number in self._fields}
        samples = self._ranges.read(*self._places(indices))
        for index, data in zip(indices.tolist(), samples, strict=True):
            values = self._split(index, data)
            for number, field in self._fields.items():
                try:
                    rows[number].append(field.encode(values[number]))
                except ValueError as error:
                    raise self._bad(index, f"{self._names[number]}: {error}") from None
        return {self._names[n]: _column(field, rows[n]) for n, field in self._fields.items()}

    def parse(self, columns: Sample) -> Sample:
        return {
            self._names[number]: field.parse(columns[self._names[number]])
            if field.varies
            else columns[self._names[number]]
            for number, field in self._fields.items()
        }

    def _places(self, indices: Indices) -> tuple[Indices, Indices, Indices]:
        """Returns the shard, offset and size of samples."""
        shards = np.searchsorted(self._first, indices, side="right") - 1
        places = indices + shards
        begins = self._bounds[places].astype(np.int64)
        return shards, begins, self._bounds[places + 1] - begins

    def _split(self, index: int, data: bytes) -> list[bytes]:
        """Returns the bytes of each column: in front are the sizes of those that vary."""
        head = 4 * self._sizes.count(None)
        varying = iter(np.frombuffer(data[:head], "<u4").tolist() if len(data) >= head else ())
        sizes = [next(varying, 0) if size is None else size for size in self._sizes]
        ends = list(accumulate(sizes, initial=head))
        if ends[-1] != len(data):
            raise self._bad(index, f"its columns have {ends[-1]} bytes, and it has {len(data)}")
        return [data[begin:end] for begin, end in pairwise(ends)]

    def _examples(self) -> list[list[bytes]]:
        """Returns the columns of some samples. Raises `SourceError` if none can be read."""
        last = len(self) - 1
        looked_at = np.unique(np.linspace(0, last, _MAX_EXAMPLES).astype(np.int64))
        found, errors = [], []
        samples = self._ranges.read(*self._places(looked_at))
        for index, data in zip(looked_at.tolist(), samples, strict=True):
            try:
                found.append(self._split(index, data))
            except SampleError as error:
                errors.append(error)
        if not found:
            raise SourceError(errors[0].message, **errors[0].metadata)
        return found

    def _bad(self, index: int, problem: str) -> SampleError:
        place = self.provenance(index)
        return SampleError(
            f"sample {index} cannot be read: {place}: {problem}",
            sample_id=index,
            file=place.file,
            offset=place.offset,
        )

    def _hash(self) -> str:
        """Returns a hash of the columns, and of the samples' sizes with the hashes of shards."""
        digest = hashlib.sha256(f"mds {self.shards[0].columns}\n".encode())
        for number, field in self._fields.items():
            digest.update(f"{self._names[number]} {field.dtype}{field.shape}\n".encode())
        for shard in self.shards:
            digest.update(f"{shard.samples} {sorted(shard.raw_data.hashes.items())}\n".encode())
        digest.update(self._bounds.astype("<u4").tobytes())
        return digest.hexdigest()


def _column(field: ColumnField, rows: list[bytes]) -> Any:
    if field.dtype == BYTES or field.varies:
        column = np.empty(len(rows), object)
        column[:] = rows
        return column
    # A copy, which may be written to.
    values = np.frombuffer(bytearray().join(rows), field.dtype)
    return values.reshape(len(rows), *field.shape)
