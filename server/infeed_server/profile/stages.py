"""The stages of an indexed pipeline, each measured alone on real samples."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed.shared.finish import apply
from infeed.shared.spec import Array, Cast, FinishTransform, Normalize, OneHot
from infeed.shared.tensorflow.from_callable import from_callable
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.profile.figures import Profile, Stage
from infeed_server.profile.samples import (
    KeptSamples,
    StepFunction,
    columns_bytes,
    function_of,
    unoptimised,
)
from infeed_server.profile.timing import Timing
from infeed_server.sources.base import Columns, Sample
from infeed_server.sources.python.mapped import MappedSource
from infeed_server.transforms import Cache, Map
from infeed_server.transforms.base import Step

_FINISH_NAMES = {Cast: "cast", Normalize: "normalize", OneHot: "one_hot"}
"""The names of finish transforms in a definition."""

OnStep = Callable[[str], None]
"""Takes the name of what is measured next, such as "2: resize image"."""


class StageProfile:
    """Measures the stages of a pipeline; adds each to the profile as soon as it is known."""

    def __init__(
        self, profile: Profile, plan: IndexedPlan, timing: Timing, samples: int, on_step: OnStep
    ) -> None:
        self._profile = profile
        self._plan = plan
        self._timing = timing
        self._on_step = on_step
        self._order = plan.order(plan.spec.seed)
        self._add = profile.stages.append
        self._reader = SampleReader(plan.source, plan.steps, self._order)
        self._taken = min(samples, len(plan.source))
        cache = [isinstance(transform, Cache) for transform in plan.definition.transforms]
        self._cache = cache.index(True) if True in cache else None
        """Transforms before the `cache` step."""

    def measure(self) -> None:
        """Measures all stages on the first samples of the first epoch, without bad ones.

        Raises `SampleError` where no sample is good, and `SourceError` for a fault of storage.
        """
        self._on_step("samples for the stages")
        index, columns = self._reader.read(self._order.slots(0, self._taken).index)
        self._profile.samples = len(index)
        self._profile.bad_samples = self._taken - len(index)
        unread = list(self._reader.unread.values())
        self._profile.bad_example = unread[0].message if unread else ""
        if not len(index):
            raise self._all_bad(self._profile.bad_example)
        raw = KeptSamples.of_columns(columns, self._reader.keys(index))
        self._measure_reading(raw)
        kept, cached = self._measure_transforms(raw, index)
        if not self._plan.is_passthrough:
            self._measure_batch(columns, cached, kept)
        self._measure_sending(kept)

    def _measure_reading(self, raw: KeptSamples) -> None:
        """Measures the source, and the user's functions in Python behind it."""
        source = self._plan.source
        inner = source.source if isinstance(source, MappedSource) else source
        slots = self._profile.batch_size
        # Behind the samples that were taken: the system has these in memory.
        starts = count(self._taken, slots)
        batches = (self._order.slots(start, slots).index for start in starts)
        sizes: list[float] = []

        def read(index: Array) -> int:
            good, columns = SampleReader(inner, (), self._order).read(index)
            if len(good):
                sizes.append(columns_bytes(columns) / len(good))
            return len(good)

        name = f"read {self._profile.source_kind}"
        self._on_step(name)
        alone = self._timing.of_reading(read, batches)
        size = sum(sizes) / max(len(sizes), 1)
        cached = self._cache is not None
        self._add(Stage("read", name, alone, size, size, cached=cached))
        if isinstance(source, MappedSource):
            both = self._timing.of_reading(lambda index: len(self._reader.read(index)[0]), batches)
            maps, _ = split_python_maps(list(enumerate(self._plan.definition.transforms)))
            name = ", ".join(map(_step_name, maps))
            self._add(Stage("map", name, both.minus(alone), size, raw.bytes, cached=cached))

    def _measure_transforms(
        self, raw: KeptSamples, index: Array
    ) -> tuple[KeptSamples, KeptSamples]:
        """Measures the graph of the server. Returns the samples behind it, and behind `cache`."""

        def parse(columns: Sample, key: tf.Tensor) -> Sample:
            del key
            return self._plan.source.parse(columns)

        kept = self._after(raw, parse, index)
        self._profile.samples = kept.count
        if not self._plan.source.parsed:
            cost = self._timing.of_function(raw, parse)
            cached = self._cache is not None
            self._add(Stage("parse", "parse", cost, raw.bytes, kept.bytes, cached=cached))
        in_cache, repeats = kept, not getattr(self._plan.source, "random", False)
        for step in self._plan.steps:
            function = function_of(step)
            self._on_step(f"{step[0]}: {_step_name(step)}")
            before, kept = kept, self._after(kept, function, index)
            repeats = repeats and not step[1].random
            cached = self._cache is not None and step[0] < self._cache
            self._add(
                Stage(
                    "transform",
                    _step_name(step),
                    self._timing.of_function(before, function),
                    before.bytes,
                    kept.bytes,
                    ordinal=step[0],
                    cached=cached,
                    cacheable=repeats and kept.is_fixed,
                    runs_python=isinstance(step[1], Map) and before.runs_python(function),
                )
            )
            in_cache = kept if cached else in_cache
        if self._profile.bad_samples and not self._profile.bad_example:
            self._profile.bad_example = self._reason(index)
        return kept, in_cache

    def _after(self, before: KeptSamples, function: StepFunction, index: Array) -> KeptSamples:
        kept = before.after(function)
        self._profile.bad_samples += kept.lost
        if not kept.count:
            raise self._all_bad(self._reason(index))
        return kept

    def _measure_batch(self, columns: Columns, cached: KeptSamples, last: KeptSamples) -> None:
        """Measures what tf.data does around the transforms, and the copies out of the `cache`.

        Columns of a batch go in, and batches of samples with fields of zeros come out.
        """
        self._on_step("batches and messages")
        slots, spec = self._profile.batch_size, self._plan.spec.wire_spec
        if self._cache is not None:
            columns = cached.batch(slots)
            order = np.random.default_rng(0).permutation(slots)

            def copy() -> int:
                for rows in columns.values():
                    rows[order]
                return slots

            cost = self._timing.median(copy)
            self._add(Stage("cache", "read cache", cost, cached.bytes, cached.bytes))

        def fill(row: Columns) -> Sample:
            del row
            return {field.name: tf.constant(field.zeros(1)[0]) for field in spec}

        numbers = np.arange(slots) % len(next(iter(columns.values())))
        rows = {name: column[numbers] for name, column in columns.items()}
        signature = {name: tf.TensorSpec(row.shape, _dtype(row)) for name, row in rows.items()}
        samples = from_callable(lambda _: rows, signature).unbatch()
        function = tf.autograph.experimental.do_not_convert(fill)
        mapped = samples.map(function, num_parallel_calls=self._timing.cores)
        batches = mapped.batch(slots, drop_remainder=True).prefetch(2)
        iterator = iter(batches.with_options(unoptimised()))

        def run() -> int:
            for value in next(iterator).values():
                np.asarray(value)
            return slots

        self._add(Stage("batch", "batch", self._timing.median(run), last.bytes, last.bytes))

    def _measure_sending(self, last: KeptSamples) -> None:
        """Measures messages, with their checksums, and the transforms of the trainer."""
        slots, spec = self._profile.batch_size, self._plan.spec
        arrays = last.batch(slots)
        sample_ids, mask = np.arange(slots), np.ones(slots, np.bool_)
        request = stream_pb2.BatchRequest()
        self._profile.wire_bytes = last.bytes

        def encode() -> int:
            batch = encode_batch(request, 0, 0, spec.wire_spec, arrays, sample_ids, mask)
            for _ in batch.messages():
                pass
            return slots

        self._add(Stage("encode", "encode", self._timing.median(encode), last.bytes, last.bytes))
        for transform in spec.finish_transforms:
            before = arrays[transform.field]
            after = apply(transform, before)

            def finish(transform: FinishTransform = transform, before: Array = before) -> int:
                apply(transform, before)
                return slots

            name = f"{_FINISH_NAMES[type(transform)]} {transform.field}"
            cost = self._timing.median(finish)
            sizes = (before.nbytes / slots, after.nbytes / slots)
            self._add(Stage("finish", name, cost, *sizes))
            arrays[transform.field] = after

    def _reason(self, index: Array) -> str:
        """Returns the error of the first of these samples that the graph fails for."""
        failures = (self._reader.failure(number) for number in index.tolist())
        return next((failure.error.message for failure in failures if failure), "")

    def _all_bad(self, example: str) -> SampleError:
        return SampleError(f"all {self._taken} samples that were tried are bad; one: {example}")


def _step_name(step: Step) -> str:
    """Returns the name of a transform; of the user's functions, with the function."""
    transform = step[1]
    if isinstance(transform, Map):
        return f"{transform.name} {transform.function_name}"
    return transform.display_name


def _dtype(column: Array) -> tf.DType:
    return tf.string if column.dtype == object else tf.as_dtype(column.dtype)
