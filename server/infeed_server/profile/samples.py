"""The samples of a profile: a few real ones, read once and kept in memory after each transform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.shared.spec import Array
from infeed_server.engines.dataset_options import graph_options
from infeed_server.pipeline.sample_graph import KEY_SPEC, apply_step
from infeed_server.sources.base import Columns, Sample
from infeed_server.transforms.base import Step

_MAX_KEPT_BYTES = 128 << 20
"""Bytes of the samples behind one transform: with less, fewer of the large ones are measured."""

_PYTHON_OPERATIONS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}

StepFunction = Callable[[Sample, tf.Tensor], Sample]
"""(sample, key) → sample."""


@dataclass(frozen=True)
class KeptSamples:
    """Samples in TensorFlow's memory: elements are (fields, key), without the bad ones.

    `count` is their number, `bytes` the mean size of one, `lost` the number of bad ones.
    """

    dataset: tf.data.Dataset
    count: int
    bytes: float
    lost: int = 0

    @classmethod
    def of_columns(cls, columns: Columns, keys: Array) -> KeptSamples:
        """Returns columns that were read, under these keys, as samples."""
        return _keep(tf.data.Dataset.from_tensor_slices((dict(columns), keys)), len(keys))

    def after(self, function: StepFunction) -> KeptSamples:
        """Returns the samples behind a transform."""
        made = _map(self.dataset, lambda sample, key: (function(sample, key), key))
        return _keep(made, self.count)

    @property
    def is_fixed(self) -> bool:
        """Whether all samples have one size, so that `cache` can keep them."""
        specs = self.dataset.element_spec[0].values()
        return all(spec.dtype != tf.string and spec.shape.is_fully_defined() for spec in specs)

    def runs_python(self, function: StepFunction) -> bool:
        """Returns whether a function of the samples calls Python from the graph."""
        traced = tf.function(function, autograph=False)
        specs = dict(self.dataset.element_spec[0])
        graph = traced.get_concrete_function(specs, KEY_SPEC).graph.as_graph_def()
        nodes = (node for function in graph.library.function for node in function.node_def)
        return any(node.op in _PYTHON_OPERATIONS for node in [*graph.node, *nodes])

    def batch(self, slots: int) -> dict[str, Array]:
        """Returns `slots` of the samples, repeated if there are fewer, in arrays by field.

        All shapes must be fixed.
        """
        samples = _map(self.dataset, lambda sample, _: sample)
        return dict(next(iter(samples.repeat().batch(slots).as_numpy_iterator())))

    def rounds(self, function: StepFunction, parallel: int) -> Callable[[], int]:
        """Returns a function that applies another to all samples, and returns their number.

        Several samples run at a time, as in a server.
        """
        made = _map(self.dataset.repeat(), function, num_parallel_calls=parallel)
        # A map of its own: TensorFlow leaves out what a function makes and does not return.
        taken = _map(made.ignore_errors(), lambda _: tf.constant(0, tf.uint8))
        iterator = iter(taken.batch(self.count).with_options(unoptimised()))

        def once() -> int:
            next(iterator)
            return self.count

        return once


def function_of(step: Step) -> StepFunction:
    """Returns the function of a transform, with its random key."""
    return lambda sample, key: apply_step(step, sample, key)


def unchanged(sample: Sample, key: tf.Tensor) -> Sample:
    """Returns the sample: what tf.data itself costs."""
    del key
    return sample


def unoptimised() -> tf.data.Options:
    """Returns the threads of a server; what is measured must not be optimised away."""
    options = graph_options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return options


def columns_bytes(columns: Columns) -> int:
    """Returns the bytes of columns."""
    return sum(
        sum(map(len, column.flat)) if column.dtype == object else column.nbytes
        for column in columns.values()
    )


def _keep(dataset: tf.data.Dataset, count: int) -> KeptSamples:
    good = dataset.ignore_errors()
    kept = good.cache()
    sizes: list[float] = []
    for size in _map(kept, lambda sample, _: _bytes(sample)).with_options(unoptimised()):
        sizes.append(float(size))
        if sum(sizes) > _MAX_KEPT_BYTES:
            return KeptSamples(good.take(len(sizes)).cache(), len(sizes), sum(sizes) / len(sizes))
    size = sum(sizes) / max(len(sizes), 1)
    return KeptSamples(kept, len(sizes), size, lost=count - len(sizes))


def _bytes(sample: Sample) -> tf.Tensor:
    sizes = [
        tf.reduce_sum(tf.strings.length(value))
        if value.dtype == tf.string
        else tf.size(value) * value.dtype.size
        for value in sample.values()
    ]
    return tf.add_n([tf.cast(size, tf.float64) for size in sizes])


def _map(dataset: tf.data.Dataset, function: Callable[..., Any], **options: Any) -> tf.data.Dataset:
    """Maps with a function as it is: this package's functions need no AutoGraph."""
    return dataset.map(tf.autograph.experimental.do_not_convert(function), **options)
