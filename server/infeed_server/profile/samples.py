"""The samples of a profile: a few real ones, read once and kept in memory after each transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.shared.spec import Array
from infeed_server.engines.dataset_options import graph_options
from infeed_server.pipeline import sample_graph
from infeed_server.sources import Source
from infeed_server.sources.base import Columns, Sample
from infeed_server.transforms.base import Step

StepFunction = Callable[[Sample, tf.Tensor], Sample]
"""(sample, key) → sample."""


@dataclass(frozen=True)
class KeptSamples:
    """Samples in TensorFlow's memory: elements are (fields, key), without the bad ones.

    `count` is their number, `bytes` the mean size of one.
    """

    dataset: tf.data.Dataset
    count: int
    bytes: float

    @classmethod
    def of_columns(cls, columns: Columns, keys: Array) -> KeptSamples:
        """Returns columns that were read, under these keys, as samples."""
        return _keep(tf.data.Dataset.from_tensor_slices((dict(columns), keys)))

    def after(self, function: StepFunction) -> KeptSamples:
        """Returns the samples behind a transform."""
        return _keep(
            self.dataset.map(_convertless(lambda sample, key: (function(sample, key), key)))
        )

    @property
    def fields(self) -> Mapping[str, tf.TensorSpec]:
        fields: Mapping[str, tf.TensorSpec] = self.dataset.element_spec[0]
        return fields

    def image_sizes(self, field: str) -> set[tuple[int, int]]:
        """Returns the different (height, width) of a field of images."""
        sizes = self.dataset.map(_convertless(lambda sample, _: tf.shape(sample[field])[:2]))
        return {(int(size[0]), int(size[1])) for size in sizes.as_numpy_iterator()}

    def batch(self, slots: int) -> dict[str, Array]:
        """Returns `slots` of the samples, repeated if there are fewer, in arrays by field.

        All shapes must be fixed.
        """
        samples = self.dataset.map(_convertless(lambda sample, _: sample))
        batches = samples.repeat().batch(slots).take(1)
        return dict(next(iter(batches.as_numpy_iterator())))

    def rounds(self, function: StepFunction, parallel: int) -> Callable[[], int]:
        """Returns a function that applies another to all samples, and returns their number.

        Several samples run at a time, as in a server.
        """

        made = self.dataset.repeat().map(_convertless(function), num_parallel_calls=parallel)
        # A map of its own: TensorFlow leaves out what a function makes and does not return.
        taken = made.ignore_errors().map(_convertless(_ignore))
        iterator = iter(taken.batch(self.count).with_options(_options()))

        def once() -> int:
            next(iterator)
            return self.count

        return once


def function_of(step: Step) -> StepFunction:
    """Returns the function of a transform, with its random key."""
    return lambda sample, key: sample_graph.apply_step(step, sample, key)


def parser_of(source: Source) -> StepFunction:
    """Returns the function that parses a source's columns."""

    def parse(columns: Sample, key: tf.Tensor) -> Sample:
        del key
        return source.parse(columns)

    return parse


def unchanged(sample: Sample, key: tf.Tensor) -> Sample:
    """Returns the sample: what tf.data itself costs."""
    del key
    return sample


def columns_bytes(columns: Columns) -> int:
    """Returns the bytes of columns."""
    return sum(
        sum(map(len, column.flat)) if column.dtype == object else column.nbytes
        for column in columns.values()
    )


def _keep(dataset: tf.data.Dataset) -> KeptSamples:
    kept = dataset.ignore_errors().cache()
    sizes = kept.map(_convertless(lambda sample, _: _bytes(sample)))
    listed = list(sizes.with_options(_options()).as_numpy_iterator())
    return KeptSamples(kept, len(listed), float(sum(listed)) / max(len(listed), 1))


def _ignore(sample: Sample) -> tf.Tensor:
    del sample
    return tf.constant(0, tf.uint8)


def _bytes(sample: Sample) -> tf.Tensor:
    sizes = [
        tf.reduce_sum(tf.strings.length(value))
        if value.dtype == tf.string
        else tf.size(value) * value.dtype.size
        for value in sample.values()
    ]
    return tf.add_n([tf.cast(size, tf.float64) for size in sizes])


def _options() -> tf.data.Options:
    """Returns the threads of a server; what is measured must not be optimised away."""
    options = graph_options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return options


def _convertless(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function as it is for `map`: this package's functions need no AutoGraph."""
    converted: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return converted
