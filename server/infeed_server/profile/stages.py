"""The costs of single stages: transforms in the graph, batches, messages, finish transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError
from infeed.shared.finish import apply
from infeed.shared.spec import Array, Cast, FinishTransform, Normalize, OneHot, Spec
from infeed.shared.tensorflow.from_callable import from_callable
from infeed.v1 import stream_pb2
from infeed.wire.batch import encode_batch
from infeed_server.engines.dataset_options import graph_options
from infeed_server.pipeline import sample_graph
from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Cost, Stage
from infeed_server.profile.progress import OnStep, ignore_step
from infeed_server.profile.samples import (
    KeptSamples,
    StepFunction,
    columns_bytes,
    function_of,
    parser_of,
    unchanged,
)
from infeed_server.profile.timing import median_cost
from infeed_server.sources import Source
from infeed_server.sources.base import Columns, Sample
from infeed_server.transforms import Map
from infeed_server.transforms.base import Step

_PYTHON_OPERATIONS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}

_FINISH_NAMES = {Cast: "cast", Normalize: "normalize", OneHot: "one_hot"}
"""The names of finish transforms in a definition."""

Keep = Callable[[int, KeptSamples], None]
"""Callback with the number of steps that were applied, and the samples behind them."""


def transform_stages(
    clock: Clock,
    kept: KeptSamples,
    steps: Sequence[Step],
    *,
    cores: int,
    seconds: float,
    on_samples: Keep,
    on_step: OnStep = ignore_step,
) -> Iterator[Stage]:
    """Yields the stage of each step, measured for so many seconds on what the steps before it make.

    Raises `SampleError` for a step that fails for all samples.
    """
    on_samples(0, kept)
    for number, step in enumerate(steps, start=1):
        on_step(f"{step[0]}: {step_name(step)}")
        after = kept.after(function_of(step))
        if not after.count:
            raise SampleError(
                f"transforms[{step[0]}].{step[1].display_name}: all {kept.count} samples that were "
                "tried fail in it; infeed check --scan names the reasons"
            )
        yield Stage(
            "transform",
            step_name(step),
            _function_cost(clock, kept, function_of(step), cores, seconds),
            kept.bytes,
            after.bytes,
            ordinal=step[0],
            runs_python=_runs_python(step, kept),
        )
        kept = after
        on_samples(number, kept)


def parse_stage(
    clock: Clock,
    source: Source,
    columns: KeptSamples,
    parsed: KeptSamples,
    *,
    cores: int,
    seconds: float,
) -> Stage:
    """Measures the parsing of what the source has read, in the graph."""
    cost = _function_cost(clock, columns, parser_of(source), cores, seconds)
    return Stage("parse", "parse", cost, columns.bytes, parsed.bytes)


def step_name(step: Step) -> str:
    """Returns the name of a transform; of the user's functions, with the function."""
    transform = step[1]
    if isinstance(transform, Map):
        return f"{transform.name} {transform.function_name}"
    return transform.display_name


def batch_stage(
    clock: Clock,
    columns: Columns,
    spec: Spec,
    slots: int,
    bytes_in: float,
    *,
    cores: int,
    seconds: float,
) -> Stage:
    """Measures what tf.data does around the transforms.

    Columns of `slots` samples go in, and batches of samples with fields of zeros come out.
    """

    def fill(row: Columns) -> Sample:
        del row
        return {field.name: tf.constant(field.zeros(1)[0]) for field in spec}

    count = len(next(iter(columns.values())))
    rows = {name: column[np.arange(slots) % count] for name, column in columns.items()}
    function = tf.autograph.experimental.do_not_convert(fill)
    signature = {name: tf.TensorSpec(each.shape, _dtype(each)) for name, each in rows.items()}
    samples = from_callable(lambda _: rows, signature).unbatch()
    mapped = samples.map(function, num_parallel_calls=cores)
    options = graph_options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    iterator = iter(mapped.batch(slots, drop_remainder=True).prefetch(2).with_options(options))

    def run() -> int:
        for value in next(iterator).values():
            np.asarray(value)
        return slots

    cost = median_cost(clock, run, seconds)
    return Stage("batch", "batch", cost, bytes_in, bytes_in)


def cache_stage(clock: Clock, columns: Columns, slots: int, seconds: float) -> Stage:
    """Measures the copies of samples out of the `cache` into a batch."""
    count = len(next(iter(columns.values())))
    order = np.random.default_rng(0).permutation(count)[np.arange(slots) % count]

    def run() -> int:
        for rows in columns.values():
            rows[order]
        return slots

    size = columns_bytes(columns) / count
    return Stage("cache", "read cache", median_cost(clock, run, seconds), size, size)


def encode_stage(
    clock: Clock, spec: Spec, arrays: dict[str, Array], bytes_in: float, seconds: float
) -> Stage:
    """Measures the encoding of a batch into messages, with its checksums."""
    slots = len(next(iter(arrays.values())))
    sample_ids, mask = np.arange(slots), np.ones(slots, np.bool_)

    def run() -> int:
        batch = encode_batch(stream_pb2.BatchRequest(), 0, 0, spec, arrays, sample_ids, mask)
        for _ in batch.messages():
            pass
        return slots

    cost = median_cost(clock, run, seconds)
    return Stage("encode", "encode", cost, bytes_in, bytes_in)


def finish_stages(
    clock: Clock, transforms: Sequence[FinishTransform], arrays: dict[str, Array], seconds: float
) -> Iterator[Stage]:
    """Yields the stage of each finish transform, measured on a batch on the wire."""
    arrays = dict(arrays)
    slots = len(next(iter(arrays.values())))
    for transform in transforms:
        before = arrays[transform.field]
        after = apply(transform, before)

        def run(transform: FinishTransform = transform, before: Array = before) -> int:
            apply(transform, before)
            return slots

        cost = median_cost(clock, run, seconds)
        name = _finish_name(transform)
        yield Stage("finish", name, cost, before.nbytes / slots, after.nbytes / slots)
        arrays[transform.field] = after


def _function_cost(
    clock: Clock, kept: KeptSamples, function: StepFunction, cores: int, seconds: float
) -> Cost:
    """Returns what a function costs, without tf.data's own part."""
    overhead = median_cost(clock, kept.rounds(unchanged, cores), seconds / 3)
    return median_cost(clock, kept.rounds(function, cores), seconds).minus(overhead)


def _finish_name(transform: FinishTransform) -> str:
    return f"{_FINISH_NAMES[type(transform)]} {transform.field}"


def _dtype(column: Array) -> tf.DType:
    return tf.string if column.dtype == object else tf.as_dtype(column.dtype)


def _runs_python(step: Step, kept: KeptSamples) -> bool:
    """Returns whether a function of the user calls Python from the graph."""
    if not isinstance(step[1], Map):
        return False
    function = tf.function(function_of(step), autograph=False)
    concrete: Any = function.get_concrete_function(dict(kept.fields), sample_graph.KEY_SPEC)
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return any(node.op in _PYTHON_OPERATIONS for node in nodes)
