"""The `tfds` source: a split prepared by TensorFlow Datasets, read without that package."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field

from infeed.shared.errors import SourceError
from infeed_formats.tfds.features import Leaf, Leaves
from infeed_formats.tfds.info import INFO_NAME, list_shards, read_features, read_info
from infeed_formats.tfrecord.features import length_field
from infeed_formats.tfrecord.index import build_index
from infeed_formats.tfrecord.reader import TFRecordReader
from infeed_server.config.model import Finding, as_tuple, did_you_mean
from infeed_server.sources.base import (
    Columns,
    IndexedDefinition,
    ProgressCallback,
    Sample,
    Source,
    find_missing,
)
from infeed_server.sources.places import Indices
from infeed_server.storage.files import PathString, absolute_path, is_file, is_remote, read_bytes

log = logging.getLogger(__name__)

_Length = Annotated[int, Field(gt=0, lt=1 << 31)]


class TfdsSource(IndexedDefinition):
    """A data set prepared by TensorFlow Datasets as TFRecords, in file order."""

    kind: ClassVar[str] = "tfds"

    tfds: PathString
    """Folder of a version, such as `data/mnist/3.0.1`, with `dataset_info.json`."""
    split: str
    """Name of the split."""
    fields: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)] | None = None
    """Features to serve, each a field; by default all that can be served."""
    max_length: dict[str, _Length] = {}  # noqa: RUF012 - of a frozen model
    """Maximum length of each feature of varying length; shorter values are padded. The field
    `NAME_length` (int64) holds the length."""
    index: PathString | None = None
    """Directory of the record index; by default beside the data."""

    def check(self) -> Iterator[Finding]:
        if is_remote(self.tfds):
            return
        try:
            info = read_info(self.folder)
        except SourceError as error:
            yield ("tfds",), error.message
        else:
            yield from find_missing(("split",), partial(info.split, self.split))

    @property
    def folder(self) -> str:
        return absolute_path(self.tfds).rstrip("/")

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> TfdsReader:
        """Opens the split and builds its record index if none is cached. Raises `SourceError`."""
        folder = self.folder
        info = read_info(folder)
        split = info.split(self.split)
        leaves = self._leaves(folder)
        files = list_shards(folder, info, split)
        index = build_index(files, self.index, progress, keep_damaged=keep_damaged)
        counts = np.diff(index.first).tolist()
        for file, count, expected in zip(files, counts, split.shard_lengths, strict=True):
            if count != expected:
                raise SourceError(
                    f"{file.path} has {count} records, but {expected} in {INFO_NAME}; copy or "
                    "prepare it again",
                    file=file.path,
                )
        options = {leaf.name: leaf.options(self.max_length.get(leaf.name)) for leaf in leaves}
        classes = {leaf.name: names for leaf in leaves if (names := _class_names(folder, leaf))}
        return TfdsReader(TFRecordReader(index, options), leaves, classes)

    def _leaves(self, folder: str) -> list[Leaf]:
        """Returns the features to serve and warns about those left out. Raises `SourceError`."""
        leaves = Leaves.of(read_features(folder))
        for name in self.max_length:
            if name not in leaves.found or not leaves.found[name].varies:
                raise SourceError(
                    f"{folder} has no feature {name!r} of varying length", at=("max_length", name)
                )
        leaves.require_lengths(self.max_length)
        for name in self.fields or ():
            if name not in leaves.found:
                reason = leaves.left_out.get(name)
                hint = f" ({reason})" if reason else did_you_mean(name, [*leaves.found])
                available = ", ".join(leaves.found) or "none"
                raise SourceError(
                    f"{folder} has no feature {name!r} that can be served{hint}; available: "
                    f"{available}"
                )
        if self.fields is None and leaves.left_out:
            listed = ", ".join(f"{name} ({reason})" for name, reason in leaves.left_out.items())
            if not leaves.found:
                raise SourceError(f"{folder} has no feature that can be served: {listed}")
            log.warning("%s: skipped features: %s", folder, listed)
        chosen = [leaf for name, leaf in leaves.found.items() if name in (self.fields or [name])]
        for leaf in chosen:
            if leaf.varies and any(length_field(leaf.name) == other.name for other in chosen):
                raise SourceError(
                    f"{folder}: feature {leaf.name!r} adds a field {length_field(leaf.name)!r}, "
                    "which is also the name of a feature; name the others in fields"
                )
        return chosen


def _class_names(folder: str, leaf: Leaf) -> tuple[str, ...]:
    """Returns the class names of a feature; none if classes have only numbers."""
    path = f"{folder}/{leaf.name.replace('/', '-')}.labels.txt"
    if not leaf.is_class or not is_file(path):
        return ()
    return tuple(read_bytes(path).decode(errors="replace").split("\n")[:-1])


class TfdsReader(Source):
    """Reads records of a split by index."""

    def __init__(
        self,
        records: TFRecordReader,
        leaves: Sequence[Leaf],
        classes: Mapping[str, Sequence[str]],
    ) -> None:
        identity = hashlib.sha256(f"tfds {records.identity} {leaves}".encode()).hexdigest()
        super().__init__(records.places, records.columns, identity, parsed=False, classes=classes)
        self.records, self._leaves = records, leaves

    def read(self, indices: Indices) -> Columns:
        return self.records.read(indices)

    def parse(self, columns: Sample) -> Sample:
        parsed = self.records.parse(columns)
        return {
            name: value for leaf in self._leaves for name, value in leaf.convert(parsed).items()
        }
