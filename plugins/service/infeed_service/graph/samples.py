"""Indexed pipelines: batches with samples selected, read and transformed in the graph.

    range(batches) → order → unbatch → map(read, decode, augment; AUTOTUNE) → batch → prefetch

One element of the range is one batch, so dynamic sharding, which splits the range among the
workers, assigns each batch once, as a whole.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import tensorflow as tf

from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.sources.base import Sample, Source
from infeed_server.transforms import Cache
from infeed_service.graph.plan import (
    DataServicePlan,
    Variant,
    data_service_spec,
    short_hash,
    with_ram_budget,
)
from infeed_service.graph.readers import GraphRead, GraphReader, graph_reader
from infeed_service.graph.unsupported import refuse_python_steps, require_size
from infeed_service.order import GraphSampleOrder

log = logging.getLogger(__name__)

_ENDLESS_BATCHES = 1 << 61
"""The end of the range of an endless dataset, as a range must have an end."""

_MAX_REPLACEMENTS = 1000
"""Substitutes tried for one slot. If all are bad, the source has hardly a good sample, or the
worker cannot read the data at all."""

_ALTERNATIVE = "write it as TFRecords, where a graph holds 12 bytes a sample, or "


def plan_samples(
    name: str, definition: Pipeline, source: Source, limit_bytes: int
) -> DataServicePlan:
    """Plans an indexed pipeline for the workers. Raises `ConfigError` and `UserCodeError`."""
    plan = plan_indexed(name, definition, source, cached=False)
    refuse_python_steps(source, plan.steps)
    in_graph = graph_reader(source)
    kind = definition.source.kind
    alternative = "" if kind == "tfrecord" else _ALTERNATIVE
    require_size(("source", kind), in_graph.size_bytes, limit_bytes, alternative)
    if any(isinstance(step, Cache) for step in definition.transforms):
        log.warning(
            "%s: cache has no effect, since the workers of the tf.data service keep no samples in "
            "memory; each epoch reads and decodes again",
            name,
        )
    return DataServicePlan(
        data_service_spec(plan.spec),
        short_hash(in_graph.paths),
        len(source),
        partial(_build, plan, in_graph),
    )


def _build(plan: IndexedPlan, in_graph: GraphReader, variant: Variant) -> tf.data.Dataset:
    order = GraphSampleOrder(plan.order(variant.seed).last)
    positions = order.order.count * variant.epochs
    ends_partial = variant.remainder == "pad" and positions % variant.batch_size != 0
    slots = _SlotBuilder(plan, order, in_graph.build())

    # `Map` converts the user's functions itself. infeed's need no AutoGraph, which would take most
    # of the time to build the dataset.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def build_slot(row: dict[str, tf.Tensor]) -> dict[str, Any]:
        values, filled, sample_id = slots.build(row, may_be_empty=ends_partial)
        position = {"start": row["start"], "epoch": row["epoch"]}
        return {"fields": values, **position, "mask": filled, "sample_ids": sample_id}

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def split(batch: dict[str, Any]) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        metadata = {"start": batch["start"][0], "epoch": batch["epoch"][0]}
        metadata |= {"mask": batch["mask"], "sample_ids": batch["sample_ids"]}
        return batch["fields"], metadata

    if positions:
        numbers = tf.data.Dataset.range(positions // variant.batch_size + ends_partial)
    else:
        # Coordinated reads require a dataset whose cardinality is infinite.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        numbers = tf.data.Dataset.range(_ENDLESS_BATCHES).apply(endless)
    if variant.shard_hint:
        numbers = numbers.shard(*[tf.data.experimental.SHARD_HINT] * 2)
    end = positions if ends_partial else None
    rows = numbers.map(partial(_rows, order, variant.batch_size, end)).unbatch()
    samples = rows.map(build_slot, num_parallel_calls=tf.data.AUTOTUNE)
    batches = samples.batch(variant.batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.deterministic = True
    # Only the parallel map above pays off; others would take more of the range than needed.
    options.experimental_optimization.map_parallelization = False
    # A small prefetch, since it is lost with a worker.
    return with_ram_budget(batches.map(split).prefetch(2).with_options(options))


def _rows(
    order: GraphSampleOrder, size: int, end: int | None, number: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the slots of a batch before samples are read; slots from position `end` are empty."""
    start = number * size
    position = start + tf.range(size, dtype=tf.int64)
    mask = tf.fill([size], value=True)
    if end is not None:
        mask = position < end
        position = tf.minimum(position, end - 1)
    slots = order.slots(position)
    return {
        "index": slots.index,
        "key": slots.key,
        "epoch": tf.fill([size], slots.epoch[0]),
        "start": tf.fill([size], start),
        "mask": mask,
    }


Slot = tuple[Sample, tf.Tensor, tf.Tensor]
"""The fields of a slot, whether it is filled, and the id of its sample."""


class _SlotBuilder:
    """Builds slots in the graph, with the results of the local engine's `BadSampleHandler`.

    Reading a sample is outside the handling of bad samples, so a storage fault fails the batch.
    """

    def __init__(self, plan: IndexedPlan, order: GraphSampleOrder, read: GraphRead) -> None:
        self._on_error = plan.spec.on_error
        self._spec = plan.spec.wire_spec
        self._order = order
        self._read = read
        self._function = plan.sample_function()

    def build(self, row: dict[str, tf.Tensor], *, may_be_empty: bool) -> Slot:
        """Builds the slot of a row: index and epoch int64, key int64[2], mask bool."""
        index, key, mask = row["index"], row["key"], row["mask"]

        def fill() -> Slot:
            return self._fill(index, key)

        def empty() -> Slot:
            return self._zeros(), tf.constant(False), index

        fields, filled, sample_id = tf.cond(mask, fill, empty) if may_be_empty else fill()
        if self._on_error == "mask":
            fields = tf.cond(filled, lambda: fields, self._zeros)
        return fields, filled, tf.where(filled, sample_id, tf.constant(-1, tf.int64))

    def _fill(self, index: tf.Tensor, key: tf.Tensor) -> Slot:
        """Returns the fields, whether the slot is filled, and the index of the sample."""
        if self._on_error == "raise":
            return self._make(*self._read(index), key), tf.constant(True), index
        # The number tried, then for the last one: whether it is good, index, key, fields.
        start = (tf.constant(0), tf.constant(False), index, key, self._zeros())
        tried, found, sample_id, _, fields = tf.while_loop(
            lambda tried, good, *_: ~good & (tried <= _MAX_REPLACEMENTS),
            lambda tried, _good, index, key, _fields: self._try_next(tried, index, key),
            start,
            parallel_iterations=1,
        )
        message = f"no good sample found in {_MAX_REPLACEMENTS} draws for sample"
        with tf.control_dependencies([tf.debugging.Assert(found, [message, index])]):
            filled = tried == 1 if self._on_error == "mask" else tf.constant(True)
            return fields, filled, tf.identity(sample_id)

    def _try_next(self, tried: tf.Tensor, index: tf.Tensor, key: tf.Tensor) -> tuple[Any, ...]:
        """Tries the sample, then its substitute, then that one's substitute, and so on."""
        index, key = tf.cond(
            tried > 0, lambda: self._order.substitute(index, key), lambda: (index, key)
        )
        good, fields = self._try(index, key)
        return tried + 1, good, index, key, fields

    def _try(self, index: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, Sample]:
        """Returns whether the sample is good, and its fields or zeros."""
        columns, defect = self._read(index)

        def make(columns: Sample, defect: tf.Tensor) -> tuple[tf.Tensor, Sample]:
            return tf.constant(True), self._make(columns, defect, key)

        made = tf.data.Dataset.from_tensors((columns, defect)).map(make)
        bad = tf.data.Dataset.from_tensors((False, self._zeros()))
        # The error of each bad sample is in the worker's log.
        either = made.ignore_errors(log_warning=True).concatenate(bad)
        good, fields = either.take(1).get_single_element()
        return good, fields

    def _make(self, columns: Sample, defect: str | tf.Tensor, key: tf.Tensor) -> Sample:
        if isinstance(defect, tf.Tensor):
            with tf.control_dependencies([tf.debugging.Assert(defect == "", [defect])]):
                columns = {name: tf.identity(value) for name, value in columns.items()}
        sample = self._function(columns, key)
        return {field.name: sample[field.name] for field in self._spec}

    def _zeros(self) -> Sample:
        types = {"bytes": tf.string}
        return {
            field.name: tf.zeros(field.shape, types.get(field.data_type, field.data_type))
            for field in self._spec
        }
