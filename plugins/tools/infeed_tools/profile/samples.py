"""The samples of a profile: a few real ones, timed and kept in memory after each transform."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import tensorflow as tf

from infeed.shared.spec import Array
from infeed_observe.usage import cpu_seconds
from infeed_server.engines.tf_data import graph_options
from infeed_server.processes import cgroup
from infeed_server.sources.base import READ_THREADS, Columns, Sample
from infeed_tools.profile.figures import Cost

_MIN_ROUNDS = 3

_MIN_ROUND_SECONDS = 0.05
"""Length of a round: shorter ones are within the error of clocks and scheduler."""


def median_cost(run: Callable[[], int], seconds: float) -> Cost:
    """Calls `run`, which returns its number of samples, for some seconds; returns the median cost
    per sample. The first call is a warm-up."""
    run()
    costs: list[Cost] = []
    end = time.perf_counter() + seconds
    while len(costs) < _MIN_ROUNDS or time.perf_counter() < end:
        wall, cpu, count = time.perf_counter(), time.process_time(), 0
        while not count or time.perf_counter() - wall < min(_MIN_ROUND_SECONDS, seconds):
            count += run()
        elapsed = time.perf_counter() - wall
        costs.append(Cost((time.process_time() - cpu) / count, elapsed / count))
    cpus, times = zip(*costs, strict=True)
    return Cost(statistics.median(cpus), statistics.median(times))


def reading_cost(read: Callable[[Array], int], batches: Iterator[Array], seconds: float) -> Cost:
    """Reads batches with as many threads as the engine; `read` returns its number of good samples.
    The CPU time includes worker processes."""
    count = 0
    cpu, begin = cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(READ_THREADS, "infeed-profile-read") as pool:
        while not count or time.perf_counter() - begin < seconds:
            count += max(1, sum(pool.map(read, islice(batches, 2 * READ_THREADS))))
    return Cost((cpu_seconds() - cpu) / count, (time.perf_counter() - begin) / count)


_MAX_KEPT_BYTES = 128 << 20
"""Bytes of the samples kept after a transform: with less, fewer large samples are measured."""

StepFunction = Callable[[Sample, tf.Tensor], Sample]
"""A function of a sample and its key that returns a sample."""


@dataclass(frozen=True)
class KeptSamples:
    """Good samples in TensorFlow's memory, as elements (fields, key).

    `count` is their number, `bytes` their mean size, `lost` the number of bad samples.
    """

    dataset: tf.data.Dataset
    count: int
    bytes: float
    lost: int = 0

    @classmethod
    def of_columns(cls, columns: Columns, keys: Array) -> KeptSamples:
        """Returns columns as samples with these keys."""
        return _keep(tf.data.Dataset.from_tensor_slices((dict(columns), keys)), len(keys))

    def after(self, function: StepFunction) -> KeptSamples:
        """Returns the samples after a transform."""
        made = _map(self.dataset, lambda sample, key: (function(sample, key), key))
        return _keep(made, self.count)

    @property
    def is_fixed(self) -> bool:
        """Whether all samples have the same size, so that `cache` can keep them."""
        specs = self.dataset.element_spec[0].values()
        return all(spec.dtype != tf.string and spec.shape.is_fully_defined() for spec in specs)

    def batches(self, slots: int) -> Iterator[dict[str, Array]]:
        """Returns endless batches by field, made like a server's. All shapes must be fixed."""
        cores = cgroup.cpu_count()
        samples = _map(self.dataset.repeat(), lambda sample, _: sample, num_parallel_calls=cores)
        batches = samples.batch(slots, drop_remainder=True).prefetch(2)
        return iter(batches.with_options(_unoptimised()).as_numpy_iterator())

    def cost(self, function: StepFunction, seconds: float) -> Cost:
        """Returns the cost of a function in a graph on all cores, without tf.data's own part."""
        around = median_cost(self._rounds(lambda sample, _: sample), seconds / 3)
        return median_cost(self._rounds(function), seconds).minus(around)

    def _rounds(self, function: StepFunction) -> Callable[[], int]:
        """Returns a function that applies `function` to all samples and returns their number."""
        made = _map(self.dataset.repeat(), function, num_parallel_calls=cgroup.cpu_count())
        # A separate map: in the same function, TensorFlow would drop the unused results.
        taken = _map(made.ignore_errors(), lambda _: tf.constant(0, tf.uint8))
        iterator = iter(taken.batch(self.count).with_options(_unoptimised()))
        return lambda: len(next(iterator))


def columns_bytes(columns: Columns) -> int:
    return sum(
        sum(map(len, column.flat)) if column.dtype == object else column.nbytes
        for column in columns.values()
    )


def _unoptimised() -> tf.data.Options:
    """Returns a server's options without optimisations, which would drop what is measured."""
    options = graph_options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return options


def _keep(dataset: tf.data.Dataset, count: int) -> KeptSamples:
    good = dataset.ignore_errors()
    kept, sizes = good.cache(), [0.0]
    for size in _map(kept, lambda sample, _: _bytes(sample)).with_options(_unoptimised()):
        sizes.append(float(size))
        if sum(sizes) > _MAX_KEPT_BYTES:
            kept = good.take(len(sizes) - 1).cache()
            count = len(sizes) - 1
            break
    number = len(sizes) - 1
    return KeptSamples(kept, number, sum(sizes) / max(number, 1), lost=count - number)


def _bytes(sample: Sample) -> tf.Tensor:
    sizes = [
        tf.reduce_sum(tf.strings.length(value))
        if value.dtype == tf.string
        else tf.size(value) * value.dtype.size
        for value in sample.values()
    ]
    return tf.add_n([tf.cast(size, tf.float64) for size in sizes])


def _map(dataset: tf.data.Dataset, function: Callable[..., Any], **options: Any) -> tf.data.Dataset:
    """Maps with a function unconverted: this package's functions need no AutoGraph."""
    return dataset.map(tf.autograph.experimental.do_not_convert(function), **options)
