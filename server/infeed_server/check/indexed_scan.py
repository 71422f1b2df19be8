"""The scan of an indexed pipeline: every sample is read, transformed and measured once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, SampleError
from infeed.shared.spec import Array
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.check.measures import WIDTH, Measures
from infeed_server.check.ranges import SOURCE_STAGE
from infeed_server.check.report import PipelineReport
from infeed_server.engines.dataset_options import graph_options
from infeed_server.engines.indexed.sample_reader import SampleReader
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.sources.base import Columns

Advance = Callable[[int], None]
"""Callback with the number of samples that were processed since the last call."""

NO_LABEL_STAGE = "labels"
"""The stage of the error of a sample that has no label."""

_READ_TOGETHER = 64
"""Samples read and measured at a time: few enough for memory, enough to hide latency."""
_FILLER = -1
"""The index of rows that fill the last group: the graph has groups of one size."""


class IndexedScan:
    """Scans the first `count` samples, as the first epoch with the pipeline's seed has them."""

    def __init__(self, plan: IndexedPlan, count: int, max_examples: int) -> None:
        """Raises `ConfigError` and `UserCodeError` like the plan."""
        source, _ = plan.uncached
        maps, steps = split_python_maps(list(enumerate(plan.definition.transforms)))
        self._source = source
        self._count = count
        self._max_examples = max_examples
        self._order = plan.order(plan.spec.seed)
        self._measures = Measures.of(dict(source.columns), source.parse, steps)
        self._reader = SampleReader(source, steps, self._order)
        self._processed = np.zeros(count, np.bool_)
        self._fault: Exception | None = None
        self.report = PipelineReport(plan.spec.name, len(source), count)
        if maps:
            self.report.stages[SOURCE_STAGE] = f"{maps[-1][0]}: map"
        self.report.measure(self._measures, steps, getattr(source, "class_names", ()))

    def run(self, advance: Advance) -> PipelineReport:
        """Reads and measures the samples. Raises `SourceError` for a fault of storage."""
        for indices, values, classes in self._dataset():
            index = np.asarray(indices)
            rows = index != _FILLER
            self._processed[index[rows]] = True
            if rows.any():
                self.report.add(np.asarray(values), classes, rows)
            advance(int(rows.sum()))
        if self._fault is not None:
            raise self._fault
        self._add_bad_samples(advance)
        return self.report

    def _add_bad_samples(self, advance: Advance) -> None:
        """Notes the samples that were not read, and those that a transform failed for."""
        report = self.report
        bad = np.flatnonzero(~self._processed).tolist()
        report.bad_samples = len(bad)
        report.without_label = sum(
            error.metadata.get("stage") == NO_LABEL_STAGE for error in self._reader.unread.values()
        )
        for index in bad[: self._max_examples]:
            report.bad_examples.append(self._reader.unread.get(index) or self._reason(index))
        advance(len(bad))

    def _reason(self, index: int) -> InfeedError:
        failure = self._reader.failure(index)
        if failure is not None:
            return failure.error
        return SampleError(
            f"sample {index} ({self._source.provenance(index)}) failed, but not when it was "
            "processed again, alone",
            sample_id=index,
        )

    def _dataset(self) -> tf.data.Dataset:
        columns = {
            name: tf.TensorSpec([_READ_TOGETHER, *spec.shape], spec.dtype)
            for name, spec in self._source.columns.items()
        }
        signature = {
            "index": tf.TensorSpec([_READ_TOGETHER], tf.int64),
            "key": tf.TensorSpec([_READ_TOGETHER, 2], tf.int64),
            "columns": columns,
        }

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def measure(row: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
            values, classes = self._measures.compute(row["columns"], row["key"])
            return row["index"], tf.ensure_shape(values, [None, WIDTH]), classes

        groups = self._groups()
        read = from_callable(lambda _: next(groups, None), signature).prefetch(2)
        measured = read.unbatch().map(measure, num_parallel_calls=tf.data.AUTOTUNE)
        return measured.ignore_errors().batch(_READ_TOGETHER).with_options(graph_options())

    def _groups(self) -> Iterator[dict[str, Any]]:
        try:
            for start in range(0, self._count, _READ_TOGETHER):
                wanted = np.arange(start, min(start + _READ_TOGETHER, self._count))
                index, columns = self._reader.read(wanted)
                if len(index):
                    yield _filled(index, self._reader.keys(index), columns)
        except Exception as error:  # noqa: BLE001 - TensorFlow would keep its message only
            self._fault = error


def _filled(index: Array, keys: Array, columns: Columns) -> dict[str, Any]:
    """Returns a group of the full size: its first row is repeated, with an index of its own."""
    missing = _READ_TOGETHER - len(index)
    rows = np.concatenate([np.arange(len(index)), np.zeros(missing, np.int64)])
    return {
        "index": np.concatenate([index, np.full(missing, _FILLER)]),
        "key": keys[rows],
        "columns": {name: values[rows] for name, values in columns.items()},
    }
