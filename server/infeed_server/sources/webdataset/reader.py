"""The reader of tars: samples by index, their fields decoded from the members' bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.base import Columns, Indices, Provenance, Source
from infeed_server.sources.webdataset.fields import FieldDecoder
from infeed_server.sources.webdataset.index import IndexedTar, Int64, split_name
from infeed_server.sources.webdataset.members import MemberScan
from infeed_server.storage.files import abbreviate, reading
from infeed_server.storage.handles import FileHandle
from infeed_server.storage.ranges import RangeReader


class WebDatasetReader(Source):
    """Reads samples of tars by index. Thread-safe."""

    def __init__(self, tars: Sequence[IndexedTar], fields: Mapping[str, Sequence[str]]) -> None:
        """`fields` has the extensions of each field. Raises `SourceError` for a field that no
        sample has, and for arrays that cannot be served."""
        self._tars = tars
        self._first = np.cumsum([0, *(tar.samples for tar in tars)], dtype=np.int64)
        self._begins = np.concatenate([tar.members.begins for tar in tars])
        self._ranges = RangeReader([tar.file for tar in tars], "it was indexed")
        self._truncated = {
            int(end) - 1
            for tar, end in zip(tars, self._first[1:], strict=True)
            if tar.members.truncated
        }
        places = [self._places(extensions) for extensions in fields.values()]
        self._offsets = np.stack([offsets for offsets, _ in places], axis=1)
        self._sizes = np.stack([sizes for _, sizes in places], axis=1)
        self._is_bad: npt.NDArray[np.bool_] = np.any(self._offsets < 0, axis=1)
        self._is_bad[[*self._truncated]] = True
        self._decoders = {
            name: self._decoder(name, extensions, column)
            for column, (name, extensions) in enumerate(fields.items())
        }
        self.columns = {name: decoder.spec for name, decoder in self._decoders.items()}
        digest = hashlib.sha256(b"webdataset\n")
        digest.update("\n".join(str(tar.members.digest) for tar in tars).encode())
        for name, decoder in self._decoders.items():
            digest.update(f"\n{name!r} {decoder.extensions} {decoder.spec}".encode())
        self.identity = digest.hexdigest()
        stamps = [tar.file.stamp for tar in tars]
        self.stamp = hashlib.sha256(repr(stamps).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._begins)

    def provenance(self, index: int) -> Provenance:
        return Provenance(self._tar_of(index).file.path, int(self._begins[index]))

    def read(self, indices: Indices) -> Columns:
        """Returns the fields of samples in the order of `indices`. Raises `SampleError` for the
        first that lacks one or has one that cannot be decoded, and `SourceError` for a tar that
        cannot be read, or changed."""
        if self._is_bad[indices].any():
            raise self._incomplete(int(indices[self._is_bad[indices]][0]))
        count = len(self._decoders)
        files = np.repeat(self._files(indices), count)
        offsets, sizes = self._offsets[indices].ravel(), self._sizes[indices].ravel()
        members = self._ranges.read(files, offsets, sizes).reshape(-1, count)
        values: dict[str, list[object]] = {name: [] for name in self._decoders}
        for row, sample in zip(members.tolist(), indices.tolist(), strict=True):
            for member, (name, decoder) in zip(row, self._decoders.items(), strict=True):
                try:
                    values[name].append(decoder.decode(member))
                except ValueError as error:
                    raise self._sample_error(sample, f"its field {name!r}: {error}") from error
        return {name: self._decoders[name].column(column) for name, column in values.items()}

    def close(self) -> None:
        self._ranges.close()

    def _places(self, extensions: Sequence[str]) -> tuple[Int64, Int64]:
        """Returns the offset and the size of a field's member in each sample; without one, -1."""
        offsets, sizes = np.full((2, len(self._begins)), -1, np.int64)
        for extension in reversed(extensions):  # the first one that a sample has is taken
            for (_, index, _), first in zip(self._tars, self._first, strict=False):
                found = index.extensions[index.kinds] == extension
                samples = index.samples[found] + first
                offsets[samples], sizes[samples] = index.offsets[found], index.sizes[found]
        return offsets, sizes

    def _decoder(self, name: str, extensions: Sequence[str], column: int) -> FieldDecoder:
        having = np.flatnonzero(self._offsets[:, column] >= 0)
        if not len(having):
            known = sorted({text for tar in self._tars for text in tar.members.extensions.tolist()})
            raise SourceError(
                f"source.webdataset.fields.{name}: no sample has {' or '.join(extensions)}; "
                f"there are: {abbreviate(known, 20)}"
            )
        sample = having[:1]

        def read_first() -> bytes:
            place = self._offsets[sample, column], self._sizes[sample, column]
            content: bytes = self._ranges.read(self._files(sample), *place)[0]
            return content

        try:
            return FieldDecoder(extensions, read_first)
        except ValueError as error:
            where = self.provenance(int(sample[0]))
            problem = f"the first sample's field {name!r}: {error}; leave it out, or repair it"
            raise SourceError(f"{where}: {problem}", file=where.file) from error

    def _files(self, samples: Indices) -> Int64:
        return np.searchsorted(self._first, samples, side="right").astype(np.int64) - 1

    def _tar_of(self, index: int) -> IndexedTar:
        return self._tars[int(self._files(np.array([index]))[0])]

    def _incomplete(self, index: int) -> SampleError:
        if index in self._truncated:
            return self._sample_error(index, "the tar is truncated inside it, or ends after it")
        lacking = [
            f"{name!r} ({' or '.join(decoder.extensions)})"
            for offset, (name, decoder) in zip(
                self._offsets[index], self._decoders.items(), strict=True
            )
            if offset < 0
        ]
        return self._sample_error(index, f"it lacks {', '.join(lacking)}")

    def _sample_error(self, index: int, problem: str) -> SampleError:
        tar, offset = self._tar_of(index), int(self._begins[index])
        path = tar.file.path
        with reading(path), FileHandle(path) as handle:
            self._ranges.check(int(self._files(np.array([index]))[0]))
            # Read again, as the keys of all samples would take much memory.
            first = next(MemberScan(handle, path, tar.file.stamp.size).members(offset), None)
        key, _ = (split_name(first.name) if first else None) or ("", "")
        return SampleError(
            f"sample {index} cannot be read: {key!r} in {path} at byte {offset}: {problem}",
            sample_id=index,
            file=path,
            offset=offset,
        )
