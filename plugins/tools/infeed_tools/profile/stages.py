"""The stages of an indexed pipeline, each measured alone on real samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed.shared.finish import finish
from infeed.shared.spec import Array
from infeed.v1 import stream_pb2
from infeed.wire.batch import Payload, encode_batch
from infeed_python.map import Map
from infeed_server.cache.records import RecordField, RecordFormat
from infeed_server.pipeline.indexed_plan import IndexedPlan, split_maps
from infeed_server.pipeline.native_pictures import decode_threads
from infeed_server.pipeline.picture_counts import DECODED
from infeed_server.pipeline.sample_graph import apply_step
from infeed_server.sources.base import Columns, Sample
from infeed_server.transforms import Cache
from infeed_server.transforms.base import Step, snake_case
from infeed_tools.check.sample_reader import SampleReader
from infeed_tools.profile.figures import Cost, Kind, Profile, Stage
from infeed_tools.profile.samples import (
    KeptSamples,
    StepFunction,
    columns_bytes,
    median_cost,
    reading_cost,
)

_NATIVE = "native decoder"

OnStep = Callable[[str], None]
"""A function that takes the name of the next measurement, such as "2: resize image"."""


class StageProfile:
    """Measures the stages of a pipeline; adds each to the profile as soon as it is known."""

    def __init__(
        self, profile: Profile, plan: IndexedPlan, seconds: float, samples: int, on_step: OnStep
    ) -> None:
        """`seconds` is the time for a stage, `samples` the number of samples to measure on."""
        self._profile = profile
        self._plan = plan
        self._seconds = seconds
        self._on_step = on_step
        self._order = plan.order(plan.spec.seed)
        self._reader = SampleReader(plan.source, plan.steps, self._order)
        self._index = self._order.slots(0, min(samples, plan.epoch_length)).index
        transforms = enumerate(plan.definition.transforms)
        caches = [number for number, transform in transforms if isinstance(transform, Cache)]
        self._cache = caches[0] if caches else -1
        """The index of the `cache` step; -1 if there is none."""

    def measure(self) -> None:
        """Measures all stages on the first samples of the first epoch, without bad ones. Raises
        `SampleError` if no sample is good, and `SourceError` for a storage fault."""
        self._on_step("samples for the stages")
        good, columns = self._reader.read(self._index)
        self._note_lost(len(self._index) - len(good), len(good))
        raw = KeptSamples.of_columns(columns, self._reader.keys(good))
        self._measure_reading(raw)
        kept, cached = self._measure_transforms(raw, columns, self._reader.keys(good))
        self._on_step("batches and messages")
        if not self._plan.is_passthrough:
            if self._cache >= 0 and cached.is_fixed:
                columns = next(cached.batches(self._profile.batch_size))
                fields = [RecordField(name, x.dtype, x.shape[1:]) for name, x in columns.items()]
                format_ = RecordFormat(fields)
                rows = range(self._profile.batch_size)
                records = [format_.encode(columns, row) for row in rows]
                read = partial(format_.decode, records)
                self._add_of_batch("cache", "read cache", cached, read)
            batches = kept.batches(self._profile.batch_size)
            self._add_of_batch("batch", "batch", kept, lambda: next(batches))
        self._measure_sending(kept)

    def _measure_reading(self, raw: KeptSamples) -> None:
        """Measures the source, and the user's Python functions after it."""
        source, slots = self._plan.source, self._profile.batch_size
        inner = source if source.behind is None else source.behind
        # After the samples read above, which the system holds in memory.
        starts = count(len(self._index), slots)
        batches = (self._order.slots(start, slots).index for start in starts)
        sizes: list[float] = []

        def read(index: Array) -> int:
            good, columns = SampleReader(inner, (), self._order).read(index)
            sizes.extend([columns_bytes(columns) / max(len(good), 1)] * bool(len(good)))
            return len(good)

        name = f"read {self._profile.source_kind}"
        self._on_step(name)
        alone = reading_cost(read, batches, self._seconds)
        size = sum(sizes) / max(len(sizes), 1)
        cached = self._cache >= 0
        self._add(Stage("read", name, alone, size, size, cached=cached))
        if inner is not source:
            cost = reading_cost(
                lambda index: len(self._reader.read(index)[0]), batches, self._seconds
            )
            maps, _ = split_maps(list(enumerate(self._plan.definition.transforms)))
            name, cost = ", ".join(map(_step_name, maps)), cost.minus(alone)
            self._add(Stage("map", name, cost, size, raw.bytes, cached=cached))

    def _measure_transforms(
        self, raw: KeptSamples, columns: Columns, keys: Array
    ) -> tuple[KeptSamples, KeptSamples]:
        """Measures the graph of the server, and the native decoder on `columns`. Returns the
        samples after the graph and those that `cache` keeps."""
        source = self._plan.source

        def parse(columns: Sample, _: tf.Tensor) -> Sample:
            return source.parse(columns)

        kept = in_cache = self._after(raw, parse)
        if not source.parsed:
            cost, cached = raw.cost(parse, self._seconds), self._cache >= 0
            self._add(Stage("parse", "parse", cost, raw.bytes, kept.bytes, cached=cached))
        repeats = not getattr(source, "random", False)
        native, left = self._measure_native(raw, columns, keys)
        for step in self._plan.steps:
            (number, transform), name = step, _step_name(step)
            function = partial(apply_step, step)
            self._on_step(f"{number}: {name}")
            before, kept = kept, self._after(kept, function)
            repeats = repeats and not transform.random
            cached = number < self._cache
            in_cache = kept if cached else in_cache
            share = left if number in native else 1.0
            if not share:
                continue
            self._add(
                Stage(
                    "transform",
                    name,
                    before.cost(function, self._seconds).times(share),
                    before.bytes,
                    kept.bytes,
                    ordinal=number,
                    cached=cached,
                    cacheable=repeats and kept.is_fixed,
                )
            )
        return kept, in_cache

    def _measure_native(
        self, raw: KeptSamples, columns: Columns, keys: Array
    ) -> tuple[Sequence[int], float]:
        """Measures the native decoder. Returns the indices of its steps, and the share of pictures
        that it leaves to the graph."""
        native = self._plan.native
        if native is None:
            return (), 1.0
        self._on_step(_NATIVE)

        def decode() -> int:
            native.make(columns, keys, decode_threads().map)
            return len(keys)

        cost = median_cost(decode, self._seconds)
        cached = native.ordinals[0] < self._cache
        self._add(Stage("transform", _NATIVE, cost, raw.bytes, native.bytes, cached=cached))
        counts = native.counts.by_status()
        return native.ordinals, 1 - counts.get(DECODED, 0) / sum(counts.values())

    def _measure_sending(self, last: KeptSamples) -> None:
        """Measures encoding messages, with their checksums, and the trainer's transforms."""
        slots, spec = self._profile.batch_size, self._plan.spec
        arrays = next(last.batches(slots))
        sample_ids, mask = np.arange(slots), np.ones(slots, np.bool_)
        request = stream_pb2.BatchRequest()
        self._profile.wire_bytes = last.bytes

        def encode() -> list[object]:
            payload = Payload(spec.wire_spec, arrays)
            batch = encode_batch(request, 0, 0, payload, sample_ids, mask)
            return list(batch.messages())

        self._add_of_batch("encode", "encode", last, encode)
        for transform in spec.finish_transforms:
            before = dict(arrays)
            arrays = finish(before, [transform], mask)
            cost = self._cost_of_batch(partial(finish, before, [transform], mask))
            name = f"{snake_case(type(transform).__name__)} {transform.field}"
            size, finished = (x[transform.field].nbytes / slots for x in (before, arrays))
            self._add(Stage("finish", name, cost, size, finished))

    def _add_of_batch(
        self, kind: Kind, name: str, samples: KeptSamples, run: Callable[[], object]
    ) -> None:
        """Adds a stage that keeps the size of samples; `run` processes a batch."""
        self._add(Stage(kind, name, self._cost_of_batch(run), samples.bytes, samples.bytes))

    def _add(self, stage: Stage) -> None:
        self._profile.stages.append(stage)

    def _cost_of_batch(self, run: Callable[[], object]) -> Cost:
        def once() -> int:
            run()
            return self._profile.batch_size

        return median_cost(once, self._seconds)

    def _after(self, before: KeptSamples, function: StepFunction) -> KeptSamples:
        kept = before.after(function)
        self._note_lost(kept.lost, kept.count)
        return kept

    def _note_lost(self, lost: int, count: int) -> None:
        """Counts bad samples, with the error of the first. Raises `SampleError` if none is left."""
        profile = self._profile
        profile.samples, profile.bad_samples = count, profile.bad_samples + lost
        if lost and not profile.bad_example:
            failures = (self._reader.failure(number) for number in self._index.tolist())
            errors = (failure.error.message for failure in failures if failure)
            profile.bad_example = next(errors, "")
        if not count:
            raise SampleError(
                f"all {len(self._index)} samples tried are bad; the first: {profile.bad_example}"
            )


def _step_name(step: Step) -> str:
    """Returns the name of a transform, with the function's name for a `map`."""
    transform = step[1]
    if isinstance(transform, Map):
        return f"{transform.name} {transform.function_name}"
    return transform.display_name
