"""The `tokens` source: sequences or windows of tokens from Megatron's `.bin` files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import Field

from infeed.shared.errors import SourceError
from infeed_formats.tokens.idx import TokenIndex, read_idx
from infeed_server.sources.base import (
    Columns,
    FilesDefinition,
    Paths,
    ProgressCallback,
    Sample,
    Source,
)
from infeed_server.sources.places import Indices, Located
from infeed_server.storage.files import read_bytes, read_stamp
from infeed_server.storage.stamp import StoredFile, hash_stamps

_FIELD = "tokens"


class TokensSource(FilesDefinition):
    """Megatron's `.idx` and `.bin` pairs, in the sorted order of their paths."""

    kind: ClassVar[str] = "tokens"

    tokens: Paths
    """The `.idx` files: a path, a glob, or a list of them. Each `.bin` is beside its `.idx`."""
    length: Annotated[int, Field(gt=0, lt=1 << 31)] | None = None
    """Tokens of a sample: each file is cut into windows of this length, across its sequences, and
    what remains is left out. By default, a sample is one sequence."""

    def open(self, progress: ProgressCallback | None = None, **_: bool) -> TokensReader:  # noqa: ARG002
        """Opens the source and reads each `.idx`. Raises `SourceError`."""
        return TokensReader(self.list_files(), self.length)


class TokensReader(Source):
    """Reads sequences or windows by index. Thread-safe."""

    def __init__(self, files: Sequence[StoredFile], length: int | None) -> None:
        digest = hashlib.sha256(f"tokens {length}\n".encode())
        pairs: list[tuple[TokenIndex, StoredFile]] = []
        for idx in files:
            content = read_bytes(idx.path)
            index, path = read_idx(content, idx.path), idx.path.removesuffix(".idx") + ".bin"
            pairs.append((index, StoredFile(path, read_stamp(path))))
            size = pairs[-1][1].stamp.size
            if problem := index.problem(size):
                raise SourceError(f"{idx.path}: {problem}", file=idx.path)
            if index.dtype != pairs[0][0].dtype:
                text = f"{idx.path} has {index.dtype}, but {files[0].path} {pairs[0][0].dtype}"
                raise SourceError(f"{text}; serve them as two pipelines", file=idx.path)
            if length and not index.is_contiguous:
                text = "its sequences are not contiguous, so they cannot be cut into windows"
                raise SourceError(f"{idx.path}: {text}; leave out length", file=idx.path)
            digest.update(hashlib.sha256(content).digest() + b"%d" % size)
        self._dtype = pairs[0][0].dtype
        places = [_windows(index, length) if length else index[1:] for index, _ in pairs]
        self._lengths = np.concatenate([lengths for lengths, _ in places]).astype(np.int64)
        begins = np.concatenate([offsets for _, offsets in places])
        if not len(begins):
            raise SourceError(
                f"no sequence, or no window of {length} tokens, in {len(files)} files such as "
                f"{files[0].path}",
                file=files[0].path,
            )
        bins, counts = [file for _, file in pairs], [len(offsets) for _, offsets in places]
        self._samples = Located(bins, counts, begins)
        self._samples.stamp = hash_stamps(file.stamp for file in (*files, *bins))
        tokens = tf.TensorSpec((length,), tf.as_dtype(self._dtype))
        columns = {_FIELD: tokens if length else tf.TensorSpec((), tf.string)}
        super().__init__(self._samples, columns, digest.hexdigest(), parsed=length is not None)

    def read(self, indices: Indices) -> Columns:
        """Returns the tokens of samples, with sequences as bytes. Raises `SourceError`."""
        rows = self._samples.read(indices, self._lengths[indices] * self._dtype.itemsize)
        if not self.parsed:
            return {_FIELD: rows}
        length = int(self._lengths[0])
        joined = np.frombuffer(b"".join(rows.tolist()), self._dtype.newbyteorder("<"))
        return {_FIELD: joined.astype(self._dtype).reshape(-1, length)}

    def parse(self, columns: Sample) -> Sample:
        if self.parsed:
            return columns
        return {_FIELD: tf.io.decode_raw(columns[_FIELD], tf.as_dtype(self._dtype))}


def _windows(index: TokenIndex, length: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Returns the lengths and the offsets of the windows of a file."""
    count = int(index.lengths.sum(dtype=np.int64)) // length
    begin = int(index.pointers[0]) if len(index.pointers) else 0
    offsets = begin + np.arange(count, dtype=np.int64) * length * index.dtype.itemsize
    return np.full(count, length, np.int64), offsets
