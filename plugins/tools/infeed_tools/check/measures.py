"""Measures of a sample in a graph: the ranges of its fields before and after each transform."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import tensorflow as tf

from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.moved_targets import SIZE
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Step, format_shape
from infeed_tools.check.ranges import MAX_CLASS_BYTES, SOURCE_STAGE, FieldRange


@dataclass(frozen=True)
class Measures:
    """The measures of a pipeline's samples: those of each field where it is new or changed."""

    parse: Callable[[Sample], Sample]
    steps: tuple[Step, ...]
    fields: tuple[tuple[int, str, tf.TensorSpec], ...]
    """Stage, name, type and shape of each field."""
    class_fields: tuple[str, ...]
    """Fields of the source whose values may be classes: single integers and byte strings."""
    mask_stages: Mapping[str, int]
    """The first stage of each mask of bytes."""

    @classmethod
    def of(
        cls,
        columns: Specs,
        parse: Callable[[Sample], Sample],
        steps: Sequence[Step],
        masks: Collection[str] = (),
    ) -> Measures:
        """Traces the steps. Raises `ConfigError` and `UserCodeError`."""
        stages = sample_graph.trace_columns(columns, parse, steps).stages
        fields = [(SOURCE_STAGE, name, spec) for name, spec in stages[0].items()]
        for number, group in groupby(zip(steps, stages[1:], strict=True), lambda pair: pair[0][0]):
            made = [*group]  # a step, followed by those that move targets with it
            after, given = made[-1][1], [step.fields() for (_, step), _ in made]
            touched = None if None in given else {name for own in given for name in own or ()}
            names = [name for name in after if not name.startswith(SIZE)]
            names = [name for name in names if touched is None or name in touched]
            fields += [(number, name, after[name]) for name in names]
        mask_stages = {
            name: number
            for number, name, spec in reversed(fields)
            if name in masks and spec.dtype == tf.uint8
        }
        return cls(parse, tuple(steps), tuple(fields), _class_fields(stages[0]), mask_stages)

    def ranges(self) -> list[FieldRange]:
        """Returns the ranges of the fields before any sample."""
        return [
            FieldRange(
                stage,
                name,
                "bytes" if spec.dtype == tf.string else spec.dtype.name,
                format_shape(spec.shape),
                # Only the number of rows varies, as in key points [n, k, 3].
                is_image=spec.shape.rank == 3 and spec.shape.as_list()[:2] == [None, None],
            )
            for stage, name, spec in self.fields
        ]

    def compute(self, columns: Sample, key: tf.Tensor) -> tuple[tf.Tensor, Sample, Sample]:
        """Returns the measures, float64[fields, 8], the values of the class fields, and for each
        mask which values it has, bool[256]."""
        sample = self.parse(columns)
        masks = self._mask_values(sample, SOURCE_STAGE)
        classes = {name: _class_value(sample[name]) for name in self.class_fields}
        measured = self._measure(sample, SOURCE_STAGE)
        for number, group in groupby(self.steps, lambda step: step[0]):
            for step in group:
                sample = sample_graph.apply_step(step, sample, key)
            measured += self._measure(sample, number)
            masks |= self._mask_values(sample, number)
        return tf.stack(measured), classes, masks

    def _measure(self, sample: Sample, stage: int) -> list[tf.Tensor]:
        return [_measure(sample[name]) for number, name, _ in self.fields if number == stage]

    def _mask_values(self, sample: Sample, stage: int) -> Sample:
        names = [name for name, first in self.mask_stages.items() if first == stage]
        pixels = {name: tf.reshape(tf.cast(sample[name], tf.int32), [-1]) for name in names}
        return {
            name: tf.math.bincount(values, minlength=256, maxlength=256) > 0
            for name, values in pixels.items()
        }


def _class_fields(specs: Specs) -> tuple[str, ...]:
    return tuple(
        name
        for name, spec in specs.items()
        if spec.shape.rank == 0 and (spec.dtype == tf.string or spec.dtype.is_integer)
    )


def _class_value(value: tf.Tensor) -> tf.Tensor:
    if value.dtype == tf.string:
        return tf.strings.substr(value, 0, MAX_CLASS_BYTES + 1)
    return value


def _measure(value: tf.Tensor) -> tf.Tensor:
    """Returns the finite values' minimum, maximum, number, sum and sum of squares, the number of
    other values, and an image's height and width."""
    numbers = tf.strings.length(value) if value.dtype == tf.string else value
    numbers = tf.cast(numbers, tf.float64)
    finite = tf.math.is_finite(numbers)
    count = tf.math.count_nonzero(finite, dtype=tf.float64)
    zeroed = tf.where(finite, numbers, tf.zeros_like(numbers))
    infinity = tf.constant(float("inf"), tf.float64)
    is_image = value.shape.rank == 3
    size = tf.cast(tf.shape(value)[:2], tf.float64) if is_image else tf.zeros([2], tf.float64)
    measures = [
        tf.reduce_min(tf.where(finite, numbers, infinity)),
        tf.reduce_max(tf.where(finite, numbers, -infinity)),
        count,
        tf.reduce_sum(zeroed),
        tf.reduce_sum(zeroed * zeroed),
        tf.cast(tf.size(numbers), tf.float64) - count,
    ]
    return tf.concat([measures, size], axis=0)
