"""The measurement of an indexed pipeline, stage by stage, and as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from infeed.shared.errors import SampleError
from infeed.shared.spec import Array
from infeed_server.check.sample_reader import SampleReader
from infeed_server.order import SampleOrder
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.profile.changed import Base, measured_changes
from infeed_server.profile.clock import Clock
from infeed_server.profile.engine_run import run_indexed
from infeed_server.profile.figures import Profile, Stage
from infeed_server.profile.progress import OnStep, ignore_step
from infeed_server.profile.reading import read_cost, readable
from infeed_server.profile.samples import KeptSamples, columns_bytes, function_of, parser_of
from infeed_server.profile.stages import (
    batch_stage,
    cache_stage,
    encode_stage,
    finish_stages,
    parse_stage,
    step_name,
    transform_stages,
)
from infeed_server.sources.base import Columns
from infeed_server.sources.python.mapped import MappedSource
from infeed_server.transforms import Cache

WHOLE_PIPELINE = "the whole pipeline"
"""The name of the run of the engine, for progress."""

MAX_SAMPLES = 64
"""Samples that the stages are measured on, unless another number is given."""

_PILOT_SAMPLES = 8
"""Samples that show how much memory one takes."""

_MAX_KEPT_BYTES = 512 << 20
"""Memory of all samples behind all transforms."""


@dataclass(frozen=True)
class Options:
    """What to measure. `seconds` is the length of the whole run."""

    seconds: float = 5.0
    samples: int | None = None
    batch_size: int | None = None

    @property
    def stage_seconds(self) -> float:
        """The time of each stage."""
        return self.seconds / 10


@dataclass(frozen=True)
class _Taken:
    """Samples that were read: as columns, and parsed."""

    index: Array
    columns: Columns
    raw: KeptSamples
    parsed: KeptSamples


class IndexedProfile:
    """Measures a pipeline; adds each figure to the profile as soon as it is known."""

    def __init__(
        self,
        profile: Profile,
        plan: IndexedPlan,
        options: Options,
        clock: Clock,
        on_step: OnStep = ignore_step,
    ) -> None:
        self._profile = profile
        self._on_step = on_step
        self._plan = plan
        self._options = options
        self._clock = clock
        self._slots = profile.batch_size = plan.spec.batch_size
        self._order = plan.order(plan.spec.seed)
        self._reader = SampleReader(plan.source, plan.steps, self._order)
        listed = plan.definition.transforms
        is_cache = [isinstance(each, Cache) for each in listed]
        self._cache = is_cache.index(True) if any(is_cache) else 0
        """Transforms before the `cache` step."""
        self._has_cache = any(is_cache)

    def measure(self) -> None:
        """Measures all stages, then the whole pipeline, and last what may be better.

        Raises `SampleError` where no sample is good, and `SourceError` for a fault of storage.
        """
        self._on_step("samples for the stages")
        taken = self._samples()
        self._measure_reading(taken)
        kept = self._measure_transforms(taken)
        self._measure_sending(taken, kept)
        self._on_step(WHOLE_PIPELINE)
        # Ends with the source closed: what follows needs its parser alone.
        for run in run_indexed(self._clock, self._plan, self._options.seconds):
            self._profile.run = run
        seconds = self._options.stage_seconds
        base = Base(self._profile, self._plan, taken.columns, kept, self._clock, seconds)
        for change in measured_changes(base, self._on_step):
            self._profile.changes.append(change)

    def _samples(self) -> _Taken:
        """Reads the samples for all stages: the first of the first epoch, without bad ones."""
        wanted = min(self._options.samples or MAX_SAMPLES, len(self._plan.source))
        if self._options.samples is None and wanted > _PILOT_SAMPLES:
            kept = self._read(_PILOT_SAMPLES).parsed
            size = kept.bytes
            for step in self._plan.steps:
                kept = kept.after(function_of(step))
                size += kept.bytes
            fitting = int(_MAX_KEPT_BYTES / max(size, 1.0))
            wanted = max(_PILOT_SAMPLES, min(wanted, fitting))
        taken = self._read(wanted)
        self._profile.samples = taken.parsed.count
        return taken

    def _read(self, count: int) -> _Taken:
        index, columns = self._reader.read(self._order.slots(0, count).index)
        profile = self._profile
        profile.bad_samples = count - len(index)
        profile.bad_example = next((each.message for each in self._reader.unread.values()), "")
        if not len(index):
            raise _all_bad(count, profile.bad_example)
        raw = KeptSamples.of_columns(columns, self._reader.keys(index))
        parsed = raw.after(parser_of(self._plan.source))
        if not parsed.count:
            raise _all_bad(count, self._explain_bad(index))
        return _Taken(index, columns, raw, parsed)

    def _explain_bad(self, index: Array) -> str:
        """Returns the error of the first of these samples that the graph fails for."""
        failures = (self._reader.failure(each) for each in index.tolist())
        return next((failure.error.message for failure in failures if failure), "")

    def _measure_reading(self, taken: _Taken) -> None:
        """Measures the source, and the user's functions in Python behind it."""
        source, clock, seconds = self._plan.source, self._clock, self._options.stage_seconds
        batches = _batches(self._order, self._slots, len(taken.index))
        inner = source.source if isinstance(source, MappedSource) else source
        sizes: list[float] = []

        def read(index: Array) -> None:
            sizes.append(columns_bytes(inner.read(index)) / len(index))

        name = f"read {self._profile.source_kind}"
        self._on_step(name)
        cost = read_cost(clock, readable(read), batches, seconds)
        size = sum(sizes) / max(len(sizes), 1)
        self._add(Stage("read", name, cost, size, size, cached=self._has_cache))
        if isinstance(source, MappedSource):
            both = read_cost(clock, readable(self._reader.read), batches, seconds)
            maps, _ = split_python_maps(list(enumerate(self._plan.definition.transforms)))
            name, after = ", ".join(map(step_name, maps)), taken.raw.bytes
            cost = both.minus(cost)
            self._add(Stage("map", name, cost, size, after, cached=self._has_cache))

    def _measure_transforms(self, taken: _Taken) -> dict[int, KeptSamples]:
        """Measures the graph of the server. Returns the samples behind the first i steps."""
        cores, seconds = self._profile.cores, self._options.stage_seconds
        if not self._plan.source.parsed:
            stage = parse_stage(
                self._clock,
                self._plan.source,
                taken.raw,
                taken.parsed,
                cores=cores,
                seconds=seconds,
            )
            self._add(replace(stage, cached=self._has_cache))
        kept: dict[int, KeptSamples] = {}
        for stage in transform_stages(
            self._clock,
            taken.parsed,
            self._plan.steps,
            cores=cores,
            seconds=seconds,
            on_samples=kept.__setitem__,
            on_step=self._on_step,
        ):
            self._add(replace(stage, cached=(stage.ordinal or 0) < self._cache))
        lost = len(taken.index) - kept[len(self._plan.steps)].count
        if lost:
            example = self._profile.bad_example or self._explain_bad(taken.index)
            self._profile.bad_example = example
            self._profile.bad_samples += lost
        return kept

    def _measure_sending(self, taken: _Taken, kept: dict[int, KeptSamples]) -> None:
        """Measures batches, messages, and the transforms of the trainer."""
        self._on_step("batches and messages")
        profile, spec, seconds = self._profile, self._plan.spec, self._options.stage_seconds
        last = kept[len(self._plan.steps)]
        arrays = last.batch(self._slots)
        profile.wire_bytes = profile.finished_bytes = last.bytes
        if not self._plan.is_passthrough:
            columns = taken.columns
            if self._has_cache:
                before = sum(ordinal < self._cache for ordinal, _ in self._plan.steps)
                columns = kept[before].batch(self._slots)
                self._add(cache_stage(self._clock, columns, self._slots, seconds))
            self._add(
                batch_stage(
                    self._clock,
                    columns,
                    spec.wire_spec,
                    self._slots,
                    last.bytes,
                    cores=profile.cores,
                    seconds=seconds,
                )
            )
        self._add(encode_stage(self._clock, spec.wire_spec, arrays, last.bytes, seconds))
        for stage in finish_stages(self._clock, spec.finish_transforms, arrays, seconds):
            self._add(stage)
            profile.finished_bytes += stage.bytes_out - stage.bytes_in

    def _add(self, stage: Stage) -> None:
        self._profile.stages.append(stage)


def _batches(order: SampleOrder, slots: int, start: int) -> Iterator[Array]:
    """Yields the samples of batches behind `start`, endlessly: they are not in memory yet."""
    while True:
        yield order.slots(start, slots).index
        start += slots


def _all_bad(count: int, example: str) -> SampleError:
    return SampleError(f"all {count} samples that were tried are bad; the first: {example}")
