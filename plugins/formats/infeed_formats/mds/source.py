"""The `mds` source: samples in Mosaic Streaming's shards, read by index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator
from pydantic import Field as Option

from infeed.shared.errors import SampleError, SourceError
from infeed_formats.columns import ColumnSource
from infeed_formats.elements import (
    Example,
    infer_fields,
    read_good,
    to_values,
)
from infeed_formats.mds.encodings import decoder
from infeed_formats.mds.index import INDEX_NAME, Shard, list_shards, read_index, read_offsets
from infeed_formats.values import Field
from infeed_server.config.model import Finding, as_tuple
from infeed_server.sources.base import (
    Columns,
    IndexedDefinition,
    ProgressCallback,
    find_missing,
    require_names,
)
from infeed_server.sources.places import Indices, Located, example_indices, sample_error
from infeed_server.storage.files import PathString, absolute_path, is_remote
from infeed_server.storage.ranges import RangeReader
from infeed_server.storage.stamp import StoredFile


class MdsSource(IndexedDefinition):
    """Samples in Mosaic Streaming's format (MDS), in the order of index.json."""

    kind: ClassVar[str] = "mds"

    mds: PathString
    """Folder with `index.json` and, below it, the uncompressed shards."""
    fields: Annotated[tuple[str, ...], Option(min_length=1), BeforeValidator(as_tuple)] | None = (
        None
    )
    """Columns to serve, each a field; by default all."""

    def check(self) -> Iterator[Finding]:
        if not is_remote(self.mds):
            yield from find_missing(("mds",), partial(read_index, self.mds))

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> MdsReader:
        """Reads the index and the offsets of all shards. Raises `SourceError`."""
        root = absolute_path(self.mds)
        shards = read_index(root)
        return MdsReader(shards, list_shards(root, shards), self.fields, progress)


class MdsReader(ColumnSource):
    """Reads samples by index, each in one range. Thread-safe."""

    def __init__(
        self,
        shards: Sequence[Shard],
        files: Sequence[StoredFile],
        fields: Sequence[str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        self._names, _, self._column_sizes = shards[0].columns
        self.shards = shards
        path = files[0].path.removesuffix(shards[0].raw_data.basename) + INDEX_NAME
        require_names(fields or (), self._names, path)
        ends = np.cumsum([file.stamp.size for file in files]).tolist()

        def report(done: int) -> None:
            if progress is not None:
                progress(ends[done - 1], ends[-1])

        self._decoders = {
            name: decoder(name, encoding, size)
            for name, encoding, size in zip(*shards[0].columns, strict=True)
            if name in (fields or self._names)
        }
        bounds = read_offsets(RangeReader(files), shards, report)
        begins = np.concatenate([of_shard[:-1] for of_shard in bounds])
        self._sizes = np.concatenate([np.diff(of_shard) for of_shard in bounds])
        self._samples = Located(files, [shard.samples for shard in shards], begins)
        found = self._infer(path)
        super().__init__(self._samples, found, self._hash(found, bounds))

    def read(self, indices: Indices) -> Columns:
        """Returns the values of samples. Raises `SampleError` for the first sample with invalid
        bytes, and `SourceError` for an unreadable or changed file."""
        return self.decode(indices, self._read(indices), self._decoders)

    def _read(self, indices: Indices) -> Iterator[dict[str, bytes]]:
        """Yields the bytes of each column of samples."""
        samples = self._samples.read(indices, self._sizes[indices])
        for index, data in zip(indices.tolist(), samples, strict=True):
            # The sizes of variable columns come first.
            head = 4 * self._column_sizes.count(None)
            varying = iter(np.frombuffer(data[:head], "<u4").tolist() if len(data) >= head else ())
            ends = [head]
            for size in self._column_sizes:
                ends.append(ends[-1] + (next(varying, 0) if size is None else size))
            if ends[-1] != len(data):
                problem = f"its columns take {ends[-1]} bytes, but it has {len(data)}"
                raise sample_error(self._samples, index, problem)
            contents = (data[begin:end] for begin, end in pairwise(ends))
            yield dict(zip(self._names, contents, strict=True))

    def _infer(self, path: str) -> tuple[Field, ...]:
        """Returns the fields that some good samples share. Raises `SourceError`."""

        def read(index: int) -> Example:
            (sample,) = self._read(np.array([index]))
            values = {name: decode(sample[name]) for name, decode in self._decoders.items()}
            return Example(index, to_values(values))

        try:
            indices = example_indices(len(self._samples))
            return infer_fields(read_good(indices, read, SampleError, ValueError))
        except (SampleError, ValueError) as error:
            problem = f"the columns have no type: sample {error}; name only good columns in fields"
            raise SourceError(f"{path}: {problem}", file=path) from None

    def _hash(self, fields: Sequence[Field], bounds: Sequence[npt.NDArray[np.uint32]]) -> str:
        """Returns a hash of the columns, the samples' sizes and the shards' hashes."""
        digest = hashlib.sha256(f"mds {self.shards[0].columns}\n".encode())
        for field in fields:
            digest.update(f"{field.name} {field.data_type}{field.shape}\n".encode())
        for shard in self.shards:
            digest.update(f"{shard.samples} {sorted(shard.raw_data.hashes.items())}\n".encode())
        for of_shard in bounds:
            digest.update(of_shard.astype("<u4").tobytes())
        return digest.hexdigest()
