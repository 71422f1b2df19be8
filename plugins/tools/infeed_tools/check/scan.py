"""The scan of a pipeline: planned as on a server, with every sample read and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError, SampleError, within
from infeed.shared.spec import Array
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.config.document import Problem
from infeed_server.engines.tf_data import graph_options, unbatched
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed, split_maps
from infeed_server.pipeline.load import FilePipelines, place_of
from infeed_server.pipeline.moved_targets import with_targets
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, SourceDefinition
from infeed_server.transforms.target import Mask
from infeed_tools.check.measures import Measures
from infeed_tools.check.ranges import SOURCE_STAGE
from infeed_tools.check.report import PipelineReport
from infeed_tools.check.rules import lost_findings, row_counts, unit_findings, value_findings
from infeed_tools.check.sample_reader import SampleReader

_NO_LABEL_STAGE = "labels"
"""The stage in the error of a sample without a label."""

_TOGETHER = 64
"""Samples read and measured at a time: more take more memory, fewer do not hide latency."""

Advance = Callable[[int], None]
"""A callback that takes the number of samples processed since the last call."""

Opening = Callable[[str], AbstractContextManager[ProgressCallback]]
"""A function that returns a context for indexing the files of a pipeline, by its name."""

Scanning = Callable[[str, int | None], AbstractContextManager[Advance]]
"""A function that returns a context for reading a number of a pipeline's samples; None: unknown."""


@runtime_checkable
class Dataset(Protocol):
    """A source of batches or samples that is read from its first element on."""

    kind: ClassVar[str]

    def make(self, seed: int) -> tf.data.Dataset:
        """Returns the dataset for a seed. Raises `ConfigError` and `UserCodeError`."""

    def explain(self, error: tf.errors.OpError, pipeline: str) -> InfeedError:
        """Returns infeed's error for one of TensorFlow's."""


def can_scan(source: SourceDefinition) -> bool:
    """Returns whether the samples can be read without the engine of another package."""
    return isinstance(source, IndexedDefinition | Dataset)


def scan_pipeline(
    pipelines: FilePipelines,
    name: str,
    opening: Opening,
    scanning: Scanning,
    *,
    limit: int | None,
    max_examples: int,
) -> tuple[PipelineReport, list[Problem]]:
    """Scans at most `limit` samples of a pipeline; returns the report, with the errors of at most
    `max_examples` bad ones, and all other problems."""
    definition, doc = pipelines[name], pipelines.document
    try:
        if isinstance(definition.source, Dataset):
            report = _scan_dataset(name, definition, definition.source, limit, scanning)
        else:
            with opening(name) as on_open:
                source = definition.open(on_open)
            with closing(source):
                plan = plan_indexed(name, definition, source, cached=False, decoder="auto")
                count = len(source) - len(plan.removed)
                count = min(count, limit or count)
                with closing(plan.source), scanning(name, count) as advance:
                    report = scan_samples(plan, count, max_examples, advance)
    except InfeedError as error:
        return PipelineReport(name), [doc.problem(place_of(error, name), error.problem)]
    report.rows = row_counts(definition, report.ranges)
    report.fills = {
        name: int(target.fill)
        for name, target in definition.targets.items()
        if isinstance(target, Mask) and "fill" in target.model_fields_set
    }
    findings = [*value_findings(definition.transforms, report.ranges)]
    units = [*unit_findings(definition, report.ranges)]
    findings += units or lost_findings(definition, report.ranges)
    return report, [doc.problem(("pipelines", name, *path), text) for path, text in findings]


def _scan_dataset(
    name: str,
    definition: Pipeline,
    source: Dataset,
    limit: int | None,
    scanning: Scanning,
) -> PipelineReport:
    """Reads a dataset once from its beginning and measures its fields. Raises `UserCodeError` if
    the dataset fails, and `ConfigError` if it is endless and there is no limit."""
    with within("source", source.kind):
        dataset = source.make(definition.shuffle.seed)
        cardinality = int(dataset.cardinality())
        if limit is None and cardinality == tf.data.INFINITE_CARDINALITY:
            raise ConfigError("the dataset is endless; give --limit")
    # The cardinality of a dataset of batches does not tell the number of its samples.
    count = cardinality if definition.batch and cardinality >= 0 else None
    samples = dataset if definition.batch else unbatched(dataset)
    steps = list(enumerate(definition.transforms))
    measures = Measures.of(dict(samples.element_spec), lambda sample: sample, steps)
    report = PipelineReport(name, count)
    report.measure(measures, steps)
    rows = samples.take(-1 if limit is None else limit).map(
        lambda sample: {
            "index": tf.zeros([], tf.int64),
            "columns": sample,
            "key": tf.zeros([2], tf.int64),
        }
    )
    try:
        with scanning(name, limit or count) as advance:
            for _, values, *others in _measured(rows, measures):
                report.add(np.asarray(values), *others)
                report.scanned += len(values)
                advance(len(values))
    except tf.errors.OpError as error:
        raise source.explain(error, name) from error
    return report


def scan_samples(
    plan: IndexedPlan, count: int, max_examples: int, advance: Advance
) -> PipelineReport:
    """Scans the first `count` samples that are not removed, as in the first epoch with the
    pipeline's seed. Raises `ConfigError` and `UserCodeError` like the plan, and `SourceError` for a
    storage fault."""
    source, _ = plan.uncached
    maps, given = split_maps(list(enumerate(plan.definition.transforms)))
    steps = with_targets(given, plan.definition.targets)
    reader = SampleReader(source, steps, plan.order(plan.spec.seed))
    targets = plan.definition.targets
    masks = [name for name, target in targets.items() if isinstance(target, Mask)]
    measures = Measures.of(dict(source.columns), source.parse, steps, masks)
    wanted = np.setdiff1d(np.arange(len(source)), np.array(plan.removed, np.int64))
    report = PipelineReport(plan.spec.name, len(wanted), count)
    wanted = wanted[:count]
    if maps:
        report.stages[SOURCE_STAGE] = f"{maps[-1][0]}: map"
    report.measure(measures, given, {} if maps else source.classes)
    faults: list[Exception] = []
    status = np.zeros(len(source), np.uint8)

    def groups() -> Iterator[dict[str, Any]]:
        try:
            for start in range(0, count, _TOGETHER):
                index, columns = reader.read(wanted[start : start + _TOGETHER])
                if plan.native and len(index):
                    status[index] = plan.native.look(columns)
                if len(index):
                    yield {"index": index, "key": reader.keys(index), "columns": columns}
        except Exception as error:  # noqa: BLE001 - TensorFlow would only keep its message
            faults.append(error)

    made = groups()
    columns = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in source.columns.items()
    }
    index, key = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2], tf.int64)
    rows = from_callable(
        lambda _: next(made, None), {"index": index, "key": key, "columns": columns}
    )
    bad = np.zeros(len(source), np.bool_)
    bad[wanted] = True
    for index, values, *others in _measured(unbatched(rows.prefetch(2)), measures, skip=True):
        bad[np.asarray(index)] = False
        report.add(np.asarray(values), *others)
        advance(len(values))
    if faults:
        raise faults[0]
    if plan.native:
        plan.native.count(status[wanted[~bad[wanted]]])
    report.decoder = str(plan.pictures)
    _add_bad_samples(report, reader, np.flatnonzero(bad), max_examples)
    advance(report.bad_samples)
    return report


def _add_bad_samples(
    report: PipelineReport, reader: SampleReader, bad: Array, max_examples: int
) -> None:
    """Notes the samples that could not be read, and those for which a transform failed."""
    report.bad_samples = len(bad)
    report.without_label = sum(
        error.metadata.get("stage") == _NO_LABEL_STAGE for error in reader.unread.values()
    )
    for index in bad[:max_examples].tolist():
        error = reader.unread.get(index)
        if error is None:
            failure = reader.failure(index)
            error = failure.error if failure else _passing(index)
        report.bad_examples.append(error)


def _passing(index: int) -> SampleError:
    return SampleError("failed at first, but not when processed again alone", sample=index)


def _measured(rows: tf.data.Dataset, measures: Measures, *, skip: bool = False) -> tf.data.Dataset:
    """Returns the index of rows and the results of `Measures.compute`, in batches. With `skip`,
    leaves out rows whose transforms fail."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def measure(row: dict[str, Any]) -> tuple[tf.Tensor, ...]:
        return row["index"], *measures.compute(row["columns"], row["key"])

    measured = rows.map(measure, num_parallel_calls=tf.data.AUTOTUNE)
    measured = measured.ignore_errors() if skip else measured
    return measured.batch(_TOGETHER).with_options(graph_options())
