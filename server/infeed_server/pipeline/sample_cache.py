"""The sample cache: a source that keeps the results of the first transforms."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError, within
from infeed_server.cache.directory import VERSION, default_root, open_directory
from infeed_server.cache.records import RecordField, RecordFormat
from infeed_server.cache.store import MemoryStore, Store
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.fingerprint import fingerprint, kernel_selection
from infeed_server.pipeline.native_pictures import NativePictures, decode_threads
from infeed_server.pipeline.packed_columns import PackedColumns
from infeed_server.pipeline.picture_steps import PictureChain
from infeed_server.pipeline.rows import Part, gather
from infeed_server.processes import cgroup
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices
from infeed_server.transforms import Cache
from infeed_server.transforms.base import Step, Transform

log = logging.getLogger(__name__)

_KEPT = "kept"
"""A column of a cache in a graph, besides those of the fields and the source."""


@dataclass(frozen=True)
class CachePlace:
    """The `cache` of a list of transforms, which is not a step, and its index."""

    ordinal: int
    cache: Cache

    def split(self, steps: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Returns the steps before and after it."""
        count = sum(ordinal < self.ordinal for ordinal, _ in steps)
        return tuple(steps[:count]), tuple(steps[count:])


def take_cache(
    transforms: Sequence[Transform], first: int = 0
) -> tuple[list[Step], CachePlace | None]:
    """Returns the steps, numbered from `first` on, and the place of a cache. Raises `ConfigError`
    for a cache after another, or after a random transform."""
    place, steps, random = None, [], ""
    for ordinal, transform in enumerate(transforms, first):
        if not isinstance(transform, Cache):
            steps.append((ordinal, transform))
            random = random or f"{transform.name} (transforms[{ordinal}])" * transform.random
            continue
        if place is not None:
            raise ConfigError("there is another before it", at=("transforms", ordinal, "cache"))
        if random:
            raise ConfigError(
                f"{random} comes before it, so every epoch would repeat the same random results; "
                "move it after cache",
                at=("transforms", ordinal, "cache"),
            )
        place = CachePlace(ordinal, transform)
    return steps, place


class CachedSource(Source):
    """Reads and transforms each sample once if the store keeps it, else each time.

    `in_graph`, for a plan with a graph: `parse` transforms the samples that the store rejects, so
    that they never leave the graph, unless the native decoder makes them. The columns are then
    `kept`, the fields of made samples, and the source's columns of the others; a row has one kind.
    """

    def __init__(
        self,
        source: Source,
        steps: Sequence[Step],
        place: CachePlace,
        pipeline: str,
        *,
        in_graph: bool = False,
        chain: PictureChain | str = "",
    ) -> None:
        """Keeps what the steps make of the source; the native decoder runs the chain. Raises
        `ConfigError` if the store cannot be opened."""
        self.source, self.steps = source, tuple(steps)
        self.hits = self.misses = 0
        self._fields = sample_graph.trace(source, steps).stages[-1]
        self._serialized = {
            name for name, spec in self._fields.items() if not spec.shape.is_fully_defined()
        }
        """Fields of varying size, kept as serialized tensors."""
        stored = {
            name: tf.TensorSpec((), tf.string) if name in self._serialized else spec
            for name, spec in self._fields.items()
        }
        self.pictures: NativePictures | None = None
        if not isinstance(chain, str):
            always_in_graph = bool(self._serialized)
            self.pictures = NativePictures(chain, source, always_in_graph=always_in_graph)
        has_other_code = any(step.has_other_code for _, step in steps)
        made = fingerprint(
            version=VERSION,
            stamp=source.places.stamp,
            transforms=[step.identity() for _, step in steps],
            fields={name: [spec.dtype.name, str(spec.shape)] for name, spec in stored.items()},
            kernels=kernel_selection() if has_other_code else None,
        )
        origin = self.pictures or source
        self._packed_fields = PackedColumns("field/", stored)
        self._packed_source = PackedColumns("source/", origin.columns)
        packed = self._packed_fields.columns | self._packed_source.columns
        super().__init__(
            source.places,
            {_KEPT: tf.TensorSpec((), tf.bool), **packed} if in_graph else stored,
            hashlib.sha256(f"{source.identity} {made}".encode()).hexdigest(),
            parsed=not (self._serialized or in_graph),
            classes=source.classes,
        )
        self._format = RecordFormat([_record_field(*item) for item in stored.items()])
        self._store = self._open_store(place, pipeline)
        self._in_graph = in_graph
        self._lock = threading.Lock()
        self._function = sample_graph.sample_function(source, steps)
        if self.pictures:
            self._function = self.pictures.sample_function()
        self._run = sample_graph.columns_function(origin.columns, self._serialize)

    def read(self, indices: Indices) -> Columns:
        wanted = dict.fromkeys(indices.tolist())
        stored = {index: record for index in wanted if (record := self._store.get(index))}
        parts = [Part(np.array([*stored], np.int64), self._format.decode([*stored.values()]))]
        missing = [index for index in wanted if index not in stored]
        rest = Part(np.array(missing, np.int64), {})
        with self._lock:
            self.hits += len(stored)
            self.misses += len(missing)
        if missing:
            rest = self._make(rest.indices, parts)
        if not self._in_graph:
            return gather(parts, indices)
        kept = ~np.isin(indices, rest.indices)
        return {
            _KEPT: kept,
            **self._packed_fields.pack(gather(parts, indices[kept]), kept),
            **self._packed_source.pack(gather([rest], indices[~kept]), ~kept),
        }

    def _make(self, indices: Indices, parts: list[Part]) -> Part:
        """Makes samples, keeps those that the store accepts, and adds them to the parts. Returns
        those that the graph must make."""
        left = Part(indices, self.source.read_checked(indices))
        keys = np.zeros((len(indices), 2), np.int64)
        if self.pictures:
            made = self.pictures.make(left.columns, keys, decode_threads().map)
            parts.append(self._keep(Part(indices, made.fields).select(made.done)))
            left = Part(indices[~made.done], made.left)
        taken = np.array([not self._in_graph or self._store.takes(i) for i in left.indices], bool)
        if taken.any():
            columns = self._run(left.select(taken).columns, keys[: taken.sum()])
            rows = {name: np.asarray(value) for name, value in columns.items()}
            parts.append(self._keep(Part(left.indices[taken], rows)))
        return left.select(~taken)

    def _keep(self, part: Part) -> Part:
        """Puts samples into the store."""
        for row, index in enumerate(part.indices.tolist()):
            if self._store.takes(index):
                self._store.put(index, self._format.encode(part.columns, row))
        return part

    def parse(self, columns: Sample) -> Sample:
        if not self._in_graph:
            return self._parse_fields(columns)
        return tf.cond(  # type: ignore[no-any-return]
            columns[_KEPT],
            lambda: self._parse_fields(self._packed_fields.unpack(columns)),
            lambda: self._function(self._packed_source.unpack(columns), tf.zeros([2], tf.int64)),
        )

    def _parse_fields(self, columns: Sample) -> Sample:
        return {
            name: tf.ensure_shape(tf.io.parse_tensor(columns[name], spec.dtype), spec.shape)
            if name in self._serialized
            else columns[name]
            for name, spec in self._fields.items()
        }

    @property
    def used_bytes(self) -> int:
        """The bytes of the store; on disk, including other processes'."""
        return self._store.used_bytes

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.source.known_fields()

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        return self.source.whole_field(name)

    def release(self) -> None:
        """Closes the store."""
        self._store.close()

    def close(self) -> None:
        self.source.close()
        self.release()

    def _open_store(self, place: CachePlace, pipeline: str) -> Store:
        """Opens the store; a folder on disk is named by the identity of what makes its samples."""
        cache = place.cache
        if cache.store == "memory":
            return MemoryStore(cache.budget // cgroup.process_count())
        root = Path(cache.path) if cache.path else default_root()
        with within("transforms", place.ordinal, "cache"):
            store = open_directory(root, self.identity, pipeline, len(self.source), cache.budget)
        if store is None:
            return MemoryStore(0)
        if kept := store.kept_samples:
            log.info(
                "pipeline %s: warm start: transforms[%d].cache has %d of %d samples, %s MB, in %s",
                *(pipeline, place.ordinal, kept, len(self.source)),
                *(f"{store.used_bytes / 1e6:,.0f}", root / self.identity),
            )
        return store

    def _serialize(self, sample: Sample, key: tf.Tensor) -> Sample:
        fields = self._function(sample, key)
        return {
            name: tf.io.serialize_tensor(value) if name in self._serialized else value
            for name, value in fields.items()
        }


def _record_field(name: str, spec: tf.TensorSpec) -> RecordField:
    dtype = np.dtype(object) if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    return RecordField(name, dtype, tuple(spec.shape.as_list()))
