"""Reader of tars: samples by index, their fields decoded from the members' bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SampleError, SourceError
from infeed_formats.columns import ColumnSource, tensor_spec
from infeed_formats.values import Field, to_value
from infeed_formats.webdataset.fields import DECODERS, TarField, decode_npy
from infeed_formats.webdataset.index import IndexedTar, Int64, split_name
from infeed_formats.webdataset.members import MemberScan
from infeed_server.sources.base import Columns
from infeed_server.sources.places import Indices, Located
from infeed_server.storage.files import abbreviate, reading
from infeed_server.storage.handles import FileHandle


class WebDatasetReader(ColumnSource):
    """Reads samples of tars by index. Thread-safe."""

    def __init__(self, tars: Sequence[IndexedTar], fields: Mapping[str, TarField]) -> None:
        """Raises `SourceError` for a field that no sample has, or arrays that cannot be served."""
        self._tars = tars
        begins = np.concatenate([tar.members.begins for tar in tars])
        self._samples = Located([tar.file for tar in tars], [tar.samples for tar in tars], begins)
        self._truncated = {
            int(end) - 1
            for tar, end in zip(tars, self._samples.first[1:], strict=True)
            if tar.members.truncated
        }
        self._extensions = {name: field.extensions for name, field in fields.items()}
        places = [self._places(extensions) for extensions in self._extensions.values()]
        self._offsets = np.stack([offsets for offsets, _ in places], axis=1)
        self._sizes = np.stack([sizes for _, sizes in places], axis=1)
        self._is_bad: npt.NDArray[np.bool_] = np.any(self._offsets < 0, axis=1)
        self._is_bad[[*self._truncated]] = True
        self._decoders = {name: DECODERS[field.kind] for name, field in fields.items()}
        found = tuple(
            self._field(name, fields[name].kind, number) for number, name in enumerate(fields)
        )
        digest = hashlib.sha256(b"webdataset\n")
        digest.update("\n".join(str(tar.members.digest) for tar in tars).encode())
        for field in found:
            extensions = (*self._extensions[field.name],)
            digest.update(f"\n{field.name!r} {extensions} {tensor_spec(field)}".encode())
        super().__init__(self._samples, found, digest.hexdigest())

    def read(self, indices: Indices) -> Columns:
        """Returns the fields of samples in the order of `indices`. Raises `SampleError` for the
        first sample with a missing or undecodable field, and `SourceError` for an unreadable or
        changed tar."""
        if self._is_bad[indices].any():
            bad = int(indices[self._is_bad[indices]][0])
            raise self.sample_error(bad, self._lack(bad))
        count = len(self.fields)
        files = np.repeat(self._samples.files_of(indices), count)
        offsets, sizes = self._offsets[indices].ravel(), self._sizes[indices].ravel()
        members = self._samples.ranges.read(files, offsets, sizes).reshape(-1, count).tolist()
        samples = (dict(zip(self._decoders, row, strict=True)) for row in members)
        return self.decode(indices, samples, self._decoders)

    def _places(self, extensions: Sequence[str]) -> tuple[Int64, Int64]:
        """Returns the offset and size of a field's member in each sample; -1 if it has none."""
        offsets, sizes = np.full((2, len(self._samples)), -1, np.int64)
        for extension in reversed(extensions):  # the first one that a sample has counts
            for (_, index, _), first in zip(self._tars, self._samples.first, strict=False):
                found = index.extensions[index.kinds] == extension
                samples = index.samples[found] + first
                offsets[samples], sizes[samples] = index.offsets[found], index.sizes[found]
        return offsets, sizes

    def _field(self, name: str, kind: str, column: int) -> Field:
        """Returns a field; an npy's type and shape are the first sample's."""
        having = np.flatnonzero(self._offsets[:, column] >= 0)
        if not len(having):
            known = sorted({text for tar in self._tars for text in tar.members.extensions.tolist()})
            raise SourceError(
                f"no sample has {' or '.join(self._extensions[name])}; there are "
                f"{abbreviate(known, 20)}, where an extension begins at a name's first dot",
                at=("fields", name),
            )
        if kind != "npy":
            return Field(name, kind)
        sample = having[:1]
        place = self._offsets[sample, column], self._sizes[sample, column]
        files = self._samples.files_of(sample)
        try:
            first = to_value(decode_npy(self._samples.ranges.read(files, *place)[0]))
        except ValueError as error:
            where = self._samples.provenance(int(sample[0]))
            problem = f"the first sample's field {name!r} {error}; leave it out, or repair it"
            raise SourceError(f"{where}: {problem}", file=where.file) from error
        return Field(name, str(first.data_type), first.array.shape)

    def _lack(self, index: int) -> str:
        """Returns why a sample is bad, as far as the index shows."""
        if index in self._truncated:
            return "the tar is truncated inside it, or ends after it"
        offsets = zip(self._offsets[index], self._extensions.items(), strict=True)
        lacking = [
            f"{name!r} ({' or '.join(texts)})" for offset, (name, texts) in offsets if offset < 0
        ]
        return f"it lacks {', '.join(lacking)}"

    def sample_error(
        self, index: int, problem: str, place: object = None, **where: Any
    ) -> SampleError:
        """Returns the error for a bad sample, with its key."""
        found, number = self.provenance(index), self._samples.file_of(index)
        path, stamp = self._samples.files[number]
        with reading(path), FileHandle(path) as handle:
            self._samples.ranges.check(number)
            # Reads the key again, because keeping all keys would take much memory.
            first = next(MemberScan(handle, path, stamp.size).members(found.offset or 0), None)
        key, _ = (split_name(first.name) if first else None) or ("", "")
        return super().sample_error(index, problem, place or f"{key!r} in {found}", **where)
