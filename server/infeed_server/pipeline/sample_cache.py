"""The sample cache: a source that keeps the results of the first transforms in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed.shared.spec import BYTES
from infeed_server.pipeline import sample_graph
from infeed_server.sources.base import Columns, Indices, Sample, Source, WrappedSource
from infeed_server.transforms import Cache
from infeed_server.transforms.base import Step


@dataclass(frozen=True)
class CachePrefix:
    """The steps before a `cache` step, and the memory limit of that step."""

    steps: tuple[Step, ...]
    limit_bytes: int
    path: str
    """Path of the `cache` step, for messages: `transforms[2].cache`."""


def split_at_cache(steps: Sequence[Step]) -> tuple[CachePrefix | None, list[Step]]:
    """Returns the steps before the `cache` step and those after it (all, if there is none)."""
    positions = [position for position, (_, step) in enumerate(steps) if isinstance(step, Cache)]
    if not positions:
        return None, list(steps)
    if len(positions) > 1:
        raise ConfigError(f"transforms[{steps[positions[1]][0]}].cache: there is one before it")
    position = positions[0]
    ordinal, cache = steps[position]
    assert isinstance(cache, Cache)
    for number, step in steps[:position]:
        if step.random:
            raise ConfigError(
                f"transforms[{ordinal}].cache: {step.name} (transforms[{number}]) stands before "
                "it, so every epoch would repeat the same random result; put it behind cache"
            )
    return CachePrefix(
        tuple(steps[:position]), cache.limit_mb << 20, f"transforms[{ordinal}].cache"
    ), list(steps[position + 1 :])


class CachedSource(WrappedSource):
    """Reads and transforms each sample once. Shapes are fixed, and so is the memory."""

    def __init__(self, source: Source, prefix: CachePrefix) -> None:
        """Raises `ConfigError` if the samples have no fixed size, or need too much memory."""
        super().__init__(source)
        self.steps = steps = prefix.steps
        specs = sample_graph.trace(source, steps)[-1]
        spec = sample_graph.field_specs(specs)
        count = len(source)
        needed = count * sum(field.sample_bytes or 0 for field in spec)
        strings = [field.name for field in spec if field.data_type == BYTES]
        if strings:
            raise ConfigError(
                f"{prefix.path}: field {strings[0]!r} holds byte strings there, whose memory is "
                "not bounded; put cache behind decode_image or decode_raw and drop other strings"
            )
        if needed > prefix.limit_bytes:
            raise ConfigError(
                f"{prefix.path}: {count} samples need {needed >> 20} MiB, over limit_mb: "
                f"{prefix.limit_bytes >> 20}; raise it, or leave cache out"
            )
        self.columns = specs
        self._rows = {field.name: field.zeros(count) for field in spec}
        self._filled = np.zeros(count, np.bool_)
        self._lock = threading.Lock()
        self._transform = _batch_function(source, sample_graph.sample_function(source, steps))

    def read(self, indices: Indices) -> Columns:
        missing = np.unique(indices[~self._filled[indices]])
        if missing.size:
            computed = self._transform(self.source.read(missing))
            with self._lock:
                for name, rows in self._rows.items():
                    rows[missing] = computed[name]
                # Last, so that other readers get only complete rows.
                self._filled[missing] = True
        return {name: rows[indices] for name, rows in self._rows.items()}


def _batch_function(
    source: Source, sample_function: sample_graph.SampleFunction
) -> Callable[[Columns], Columns]:
    """Returns a traced function from columns of any number of samples to their fields."""
    signature = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in source.columns.items()
    }
    key = tf.zeros([2], tf.int64)

    @tf.function(input_signature=[signature], autograph=False)  # type: ignore[untyped-decorator]
    def run(columns: Sample) -> Sample:
        count = tf.shape(next(iter(columns.values())), out_type=tf.int64)[0]
        samples = tf.data.Dataset.from_tensor_slices(columns)
        mapped = samples.map(lambda sample: sample_function(sample, key), tf.data.AUTOTUNE)
        fields: Sample = mapped.batch(count).get_single_element()
        return fields

    def transform(columns: Columns) -> Columns:
        return {name: np.asarray(value) for name, value in run(columns).items()}

    return transform
