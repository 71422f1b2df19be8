"""A source that keeps what the first transforms made of each sample in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed.errors import ConfigError
from infeed.spec import BYTES
from infeed_server.pipeline import graph
from infeed_server.sources.base import Columns, Indices, Provenance, Sample, Source
from infeed_server.transforms import Cache


@dataclass(frozen=True)
class BeforeCache:
    """The steps in front of a `cache` step, and the memory it may take."""

    steps: tuple[graph.Step, ...]
    limit_bytes: int
    place: str
    """Of the `cache` step, for messages: `transforms[2].cache`."""


def split_at_cache(
    steps: Sequence[graph.Step],
) -> tuple[BeforeCache | None, list[graph.Step]]:
    """The steps in front of the `cache` step, and those behind it (all, when there is none)."""
    places = [place for place, (_, step) in enumerate(steps) if isinstance(step, Cache)]
    if not places:
        return None, list(steps)
    if len(places) > 1:
        raise ConfigError(f"transforms[{steps[places[1]][0]}].cache: there is one before it")
    place = places[0]
    ordinal, cache = steps[place]
    assert isinstance(cache, Cache)
    for number, step in steps[:place]:
        if step.random:
            raise ConfigError(
                f"transforms[{ordinal}].cache: {step.name} (transforms[{number}]) stands before "
                "it, so every epoch would repeat the same random result; put it behind cache"
            )
    return BeforeCache(
        tuple(steps[:place]), cache.limit_mb << 20, f"transforms[{ordinal}].cache"
    ), list(steps[place + 1 :])


class CachedSource:
    """Each sample is read and transformed once, then kept; shapes are fixed, so is the memory."""

    parsed = True

    def __init__(self, source: Source, before: BeforeCache) -> None:
        """Raises `ConfigError` when the samples have no fixed size, or need too much memory."""
        self.source = source
        self.steps = steps = before.steps
        specs = graph.trace(source, steps)[-1]
        spec = graph.field_specs(specs)
        count = len(source)
        needed = count * sum(field.sample_bytes or 0 for field in spec)
        strings = [field.name for field in spec if field.data_type == BYTES]
        if strings:
            raise ConfigError(
                f"{before.place}: field {strings[0]!r} holds byte strings there, whose memory is "
                "not bounded; put cache behind decode_image or decode_raw and drop other strings"
            )
        if needed > before.limit_bytes:
            raise ConfigError(
                f"{before.place}: {count} samples need {needed >> 20} MiB, over limit_mb: "
                f"{before.limit_bytes >> 20}; raise it, or leave cache out"
            )
        self.columns: Mapping[str, tf.TensorSpec] = specs
        self._rows = {field.name: field.zeros(count) for field in spec}
        self._filled = np.zeros(count, np.bool_)
        self._lock = threading.Lock()
        self._fill = _batch_function(source, graph.function(source, steps))

    @property
    def identity(self) -> str:
        return self.source.identity

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices) -> Columns:
        missing = np.unique(indices[~self._filled[indices]])
        if missing.size:
            made = self._fill(self.source.read(missing))
            with self._lock:
                for name, rows in self._rows.items():
                    rows[missing] = made[name]
                # Only now may other readers take the rows.
                self._filled[missing] = True
        return {name: rows[indices] for name, rows in self._rows.items()}

    def parse(self, columns: Sample) -> Sample:
        return columns

    def provenance(self, index: int) -> Provenance:
        return self.source.provenance(index)


def _batch_function(
    source: Source, sample_function: graph.SampleFunction
) -> Callable[[Columns], Columns]:
    """A traced function from columns of any number of samples to their fields."""
    signature = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in source.columns.items()
    }
    key = tf.zeros([2], tf.int64)

    @tf.function(input_signature=[signature], autograph=False)  # type: ignore[untyped-decorator]
    def run(columns: Sample) -> Sample:
        count = tf.shape(next(iter(columns.values())), out_type=tf.int64)[0]
        samples = tf.data.Dataset.from_tensor_slices(columns)
        mapped = samples.map(lambda one: sample_function(one, key), tf.data.AUTOTUNE)
        whole: Sample = mapped.batch(count).get_single_element()
        return whole

    def fill(columns: Columns) -> Columns:
        return {name: np.asarray(value) for name, value in run(columns).items()}

    return fill
