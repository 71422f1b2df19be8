"""Scan of a pipeline: it is planned as a server does, and each sample is measured in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, SampleError
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.check.report import (
    MAX_CLASS_BYTES,
    SOURCE_STAGE,
    ClassCounts,
    FieldRange,
    PipelineReport,
    value_findings,
)
from infeed_server.config.document import Problem
from infeed_server.engines.dataset_options import graph_options
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import FilePipelines, error_path
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.sources import DatasetSource, ProgressCallback, open_source
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Step
from infeed_server.transforms.field_checks import format_shape

_TOGETHER = 64
"""Samples read and measured at a time: few enough for memory, enough to hide latency."""

Opening = Callable[[str], AbstractContextManager[ProgressCallback]]
"""Returns a context in which the files of the named pipeline are indexed."""

Scanning = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Returns a context in which so many samples are read, with a callback for each part of them."""


def scan_pipeline(
    pipelines: FilePipelines,
    name: str,
    opening: Opening,
    scanning: Scanning,
    *,
    limit: int | None,
    max_examples: int,
) -> tuple[PipelineReport, list[Problem]]:
    """Scans a pipeline; returns the report, and the problems besides bad samples.

    `limit` is the maximum number of samples, `max_examples` of bad ones with their errors.
    """
    definition, doc = pipelines[name], pipelines.document
    if isinstance(definition.source, DatasetSource):  # it has no samples by number
        return PipelineReport(name), []
    try:
        keep_damaged = definition.on_error != "raise"
        with opening(name) as on_open:
            source = open_source(definition.source, on_open, keep_damaged=keep_damaged)
        with closing(source):
            plan = plan_indexed(name, definition, source, cached=False)
            count = min(len(source), limit or len(source))
            with closing(plan.source), scanning(name, count) as advance:
                report = _scan_indexed(plan, count, max_examples, advance)
    except InfeedError as error:
        path, message = error_path(error, name)
        return PipelineReport(name, 0), [doc.problem(path, message)]
    findings = value_findings(definition.transforms, report.ranges)
    return report, [doc.problem(("pipelines", name, *path), text) for path, text in findings]


def _scan_indexed(
    plan: IndexedPlan, count: int, max_examples: int, advance: Callable[[int], None]
) -> PipelineReport:
    """Scans the first `count` samples, as the first epoch with the pipeline's seed has them.

    Raises `ConfigError` and `UserCodeError` like the plan, and `SourceError` for a fault of
    storage.
    """
    source, _ = plan.uncached
    maps, steps = split_python_maps(list(enumerate(plan.definition.transforms)))
    reader = SampleReader(source, steps, plan.order(plan.spec.seed))
    measures = Measures(dict(source.columns), source.parse, steps)
    report = PipelineReport(plan.spec.name, len(source), count)
    report.ranges, report.classes = measures.ranges, measures.classes
    report.stages |= {number: f"{number}: {transform.name}" for number, transform in steps}
    if maps:
        report.stages[SOURCE_STAGE] = f"{maps[-1][0]}: map"
    if "label" in report.classes:
        report.classes["label"].names = getattr(source, "class_names", ())
    faults: list[Exception] = []

    def groups() -> Iterator[tuple[Any, ...]]:
        try:
            for start in range(0, count, _TOGETHER):
                index, columns = reader.read(np.arange(start, min(start + _TOGETHER, count)))
                if len(index):
                    yield index, reader.keys(index), columns
        except Exception as error:  # noqa: BLE001 - TensorFlow would keep its message only
            faults.append(error)

    made = groups()
    columns = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in source.columns.items()
    }
    index, key = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2], tf.int64)
    rows = from_callable(lambda _: next(made, None), (index, key, columns)).prefetch(2).unbatch()
    bad = np.ones(count, np.bool_)
    for index, values, classes in _measured(rows, measures):
        bad[np.asarray(index)] = False
        report.add(np.asarray(values), classes)
        advance(len(values))
    if faults:
        raise faults[0]
    report.bad_samples = int(bad.sum())
    for number in np.flatnonzero(bad)[:max_examples].tolist():
        failure = reader.failure(number)
        again = SampleError(f"sample {number} failed, but not alone", sample_id=number)
        report.bad_examples.append(
            reader.unread.get(number) or (failure.error if failure else again)
        )
    advance(report.bad_samples)
    return report


def _measured(rows: tf.data.Dataset, measures: Measures) -> tf.data.Dataset:
    """Returns the index, the measures and the class fields of rows, some at a time.

    A row whose transforms fail is left out.
    """

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def measure(
        index: tf.Tensor, key: tf.Tensor, columns: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        return index, *measures.compute(columns, key)

    measured = rows.map(measure, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    return measured.batch(_TOGETHER).with_options(graph_options())


class Measures:
    """The measures of a pipeline's samples: of each field where it is new or changed."""

    def __init__(
        self, columns: Specs, parse: Callable[[Sample], Sample], steps: Sequence[Step]
    ) -> None:
        """Traces the steps. Raises `ConfigError` and `UserCodeError`."""
        stages = sample_graph.trace_columns(columns, parse, steps)
        self._parse, self._steps = parse, steps
        self.ranges = [_range(SOURCE_STAGE, name, spec) for name, spec in stages[0].items()]
        for (number, transform), after in zip(steps, stages[1:], strict=True):
            touched = transform.fields()
            names = after if touched is None else [name for name in after if name in touched]
            self.ranges += [_range(number, name, after[name]) for name in names]
        self.classes = {
            name: ClassCounts()
            for name, spec in stages[0].items()
            if spec.shape.rank == 0 and (spec.dtype == tf.string or spec.dtype.is_integer)
        }

    def compute(self, columns: Sample, key: tf.Tensor) -> tuple[tf.Tensor, Sample]:
        """Returns the measures, float64[fields, 6], and the values of the fields of classes."""
        sample = self._parse(columns)
        classes = {name: _class_value(sample[name]) for name in self.classes}
        measured = self._measure(sample, SOURCE_STAGE)
        for step in self._steps:
            sample = sample_graph.apply_step(step, sample, key)
            measured += self._measure(sample, step[0])
        return tf.stack(measured), classes

    def _measure(self, sample: Sample, stage: int) -> list[tf.Tensor]:
        return [_measure(sample[found.field]) for found in self.ranges if found.stage == stage]


def _range(stage: int, name: str, spec: tf.TensorSpec) -> FieldRange:
    data_type = "bytes" if spec.dtype == tf.string else spec.dtype.name
    return FieldRange(stage, name, data_type, format_shape(spec.shape))


def _class_value(value: tf.Tensor) -> tf.Tensor:
    if value.dtype == tf.string:
        return tf.strings.substr(value, 0, MAX_CLASS_BYTES + 1)
    return tf.cast(value, tf.int64)


def _measure(value: tf.Tensor) -> tf.Tensor:
    """Returns minimum, maximum, number, sum and sum of squares of the finite values, and the number
    of the others."""
    numbers = tf.strings.length(value) if value.dtype == tf.string else value
    numbers = tf.cast(numbers, tf.float64)
    finite = tf.math.is_finite(numbers)
    count = tf.math.count_nonzero(finite, dtype=tf.float64)
    zeroed = tf.where(finite, numbers, tf.zeros_like(numbers))
    infinity = tf.constant(float("inf"), tf.float64)
    measures = [
        tf.reduce_min(tf.where(finite, numbers, infinity)),
        tf.reduce_max(tf.where(finite, numbers, -infinity)),
        count,
        tf.reduce_sum(zeroed),
        tf.reduce_sum(zeroed * zeroed),
        tf.cast(tf.size(numbers), tf.float64) - count,
    ]
    return tf.stack(measures)
