"""Measures of one sample in a graph: the ranges of its fields before and after each transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from infeed_server.check.report import MAX_CLASS_BYTES, SOURCE_STAGE, ClassCounts, FieldRange
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Step
from infeed_server.transforms.field_checks import format_shape


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
