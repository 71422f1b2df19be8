"""The stages of an indexed pipeline, each measured alone on real samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed.shared.finish import apply
from infeed.shared.spec import Array, Cast, Normalize, OneHot
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.pipeline.sample_graph import apply_step
from infeed_server.profile.figures import Cost, Kind, Profile, Stage
from infeed_server.profile.samples import (
    KeptSamples,
    StepFunction,
    columns_bytes,
    median_cost,
    reading_cost,
)
from infeed_server.sources.base import Sample
from infeed_server.transforms import Map
from infeed_server.transforms.base import Step

_FINISH_NAMES = {Cast: "cast", Normalize: "normalize", OneHot: "one_hot"}
"""The names of finish transforms in a definition."""

OnStep = Callable[[str], None]
"""Takes the name of what is measured next, such as "2: resize image"."""


class StageProfile:
    """Measures the stages of a pipeline; adds each to the profile as soon as it is known."""

    def __init__(
        self, profile: Profile, plan: IndexedPlan, seconds: float, samples: int, on_step: OnStep
    ) -> None:
        """Takes the seconds of a stage, and the samples to measure on."""
        self._profile = profile
        self._plan = plan
        self._seconds = seconds
        self._on_step = on_step
        self._order = plan.order(plan.spec.seed)
        self._reader = SampleReader(plan.source, plan.steps, self._order)
        self._index = self._order.slots(0, min(samples, len(plan.source))).index

    def measure(self) -> None:
        """Measures all stages on the first samples of the first epoch, without bad ones.

        Raises `SampleError` where no sample is good, and `SourceError` for a fault of storage.
        """
        self._on_step("samples for the stages")
        good, columns = self._reader.read(self._index)
        self._note_lost(len(self._index) - len(good), len(good))
        raw = KeptSamples.of_columns(columns, self._reader.keys(good))
        self._measure_reading()
        kept = self._measure_transforms(raw)
        self._on_step("batches and messages")
        if not self._plan.is_passthrough:
            batches = kept.batches(self._profile.batch_size)
            cost = self._cost_of_batch(lambda: next(batches))
            self._add(Stage("batch", "batch", cost, kept.bytes, kept.bytes))
        self._measure_sending(kept)

    def _measure_reading(self) -> None:
        """Measures the source, with the user's functions in Python behind it."""
        slots = self._profile.batch_size
        # Behind the samples that were taken: the system has these in memory.
        starts = count(len(self._index), slots)
        batches = (self._order.slots(start, slots).index for start in starts)
        sizes: list[float] = []

        def read(index: Array) -> int:
            good, columns = self._reader.read(index)
            sizes.extend([columns_bytes(columns) / max(len(good), 1)] * bool(len(good)))
            return len(good)

        maps, _ = split_python_maps(list(enumerate(self._plan.definition.transforms)))
        name = ", ".join([f"read {self._profile.source_kind}", *map(_step_name, maps)])
        self._on_step(name)
        cost = reading_cost(read, batches, self._seconds)
        size = sum(sizes) / max(len(sizes), 1)
        self._add(Stage("read", name, cost, size, size))

    def _measure_transforms(self, kept: KeptSamples) -> KeptSamples:
        """Measures the graph of the server. Returns the samples behind it."""
        source = self._plan.source

        def parse(columns: Sample, _: tf.Tensor) -> Sample:
            return source.parse(columns)

        if source.parsed:
            kept = self._after(kept, parse)
        else:
            kept = self._measure_step("parse", "parse", kept, parse)
        for step in self._plan.steps:
            name = f"{step[0]}: {_step_name(step)}"
            kept = self._measure_step("transform", name, kept, partial(apply_step, step))
        return kept

    def _measure_step(
        self, kind: Kind, name: str, before: KeptSamples, function: StepFunction
    ) -> KeptSamples:
        self._on_step(name)
        after = self._after(before, function)
        cost = before.cost(function, self._seconds)
        self._add(Stage(kind, name, cost, before.bytes, after.bytes))
        return after

    def _measure_sending(self, last: KeptSamples) -> None:
        """Measures messages, with their checksums, and the transforms of the trainer."""
        slots, spec = self._profile.batch_size, self._plan.spec
        arrays = next(last.batches(slots))
        sample_ids, mask = np.arange(slots), np.ones(slots, np.bool_)
        request = stream_pb2.BatchRequest()
        self._profile.wire_bytes = last.bytes

        def encode() -> list[object]:
            batch = encode_batch(request, 0, 0, spec.wire_spec, arrays, sample_ids, mask)
            return list(batch.messages())

        cost = self._cost_of_batch(encode)
        self._add(Stage("encode", "encode", cost, last.bytes, last.bytes))
        for transform in spec.finish_transforms:
            before = arrays[transform.field]
            after = arrays[transform.field] = apply(transform, before)
            name = f"{_FINISH_NAMES[type(transform)]} {transform.field}"
            cost = self._cost_of_batch(partial(apply, transform, before))
            self._add(Stage("finish", name, cost, before.nbytes / slots, after.nbytes / slots))

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
                f"all {len(self._index)} samples that were tried are bad; one: "
                f"{profile.bad_example}"
            )


def _step_name(step: Step) -> str:
    """Returns the name of a transform; of the user's functions, with the function."""
    transform = step[1]
    if isinstance(transform, Map):
        return f"{transform.name} {transform.function_name}"
    return transform.display_name
