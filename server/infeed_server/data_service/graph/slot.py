"""The slots of a batch in the graph: a sample, or the substitute of a bad one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from infeed_server.order.tf_sample_order import GraphSampleOrder
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.sources.base import Sample

_MAX_REPLACEMENTS = 1000
"""Substitutes tried for one slot. With more, the source has hardly a good sample, or the worker
cannot read the data at all."""


@dataclass(frozen=True)
class Slot:
    """A slot: its fields, whether it is filled, and the id of its sample (-1: empty)."""

    fields: Sample
    filled: tf.Tensor
    sample_id: tf.Tensor


class SlotBuilder:
    """Builds slots in the graph, with the results of the local engine's `BadSampleHandler`."""

    def __init__(
        self, plan: IndexedPlan, order: GraphSampleOrder, read: Callable[[tf.Tensor], Sample]
    ) -> None:
        self._on_error = plan.spec.on_error
        self._spec = plan.spec.wire_spec
        self._order = order
        self._read = read
        self._function = plan.sample_function()

    def build(self, row: dict[str, tf.Tensor], *, may_be_empty: bool) -> Slot:
        """Builds the slot of a row: index and epoch int64, key int64[2], mask bool."""
        index, key, mask = row["index"], row["key"], row["mask"]

        def fill() -> tuple[Sample, tf.Tensor, tf.Tensor]:
            return self._fill(index, key)

        def empty() -> tuple[Sample, tf.Tensor, tf.Tensor]:
            return self._zeros(), tf.constant(False), index

        fields, filled, sample_id = tf.cond(mask, fill, empty) if may_be_empty else fill()
        if self._on_error == "mask":
            fields = tf.cond(filled, lambda: fields, self._zeros)
        return Slot(fields, filled, tf.where(filled, sample_id, tf.constant(-1, tf.int64)))

    def _fill(self, index: tf.Tensor, key: tf.Tensor) -> tuple[Sample, tf.Tensor, tf.Tensor]:
        """Returns fields, whether the slot is filled, and the index of the sample."""
        if self._on_error == "raise":
            return self._make(index, key), tf.constant(True), index
        candidates = self._candidates(index, key).concatenate(self._failing_dataset(index))
        attempt, sample_id, fields = candidates.take(1).get_single_element()
        filled = attempt == 0 if self._on_error == "mask" else tf.constant(True)
        return fields, filled, sample_id

    def _make(self, index: tf.Tensor, key: tf.Tensor) -> Sample:
        sample = self._function(self._read(index), key)
        return {field.name: sample[field.name] for field in self._spec}

    def _candidates(self, index: tf.Tensor, key: tf.Tensor) -> tf.data.Dataset:
        """Returns the good ones of the sample, its substitute, the substitute of that, ..."""

        def substitute(
            state: tuple[tf.Tensor, tf.Tensor], attempt: tf.Tensor
        ) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]:
            drawn = tf.cond(attempt > 0, lambda: self._order.substitute(*state), lambda: state)
            return drawn, (attempt, *drawn)

        def make(
            attempt: tf.Tensor, index: tf.Tensor, key: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, Sample]:
            return attempt, index, self._make(index, key)

        attempts = tf.data.Dataset.range(_MAX_REPLACEMENTS + 1)
        # The error of each bad sample is in the worker's log.
        return attempts.scan((index, key), substitute).map(make).ignore_errors(log_warning=True)

    def _failing_dataset(self, index: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset whose only element fails."""

        def fail(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Sample]:
            message = f"no good sample found in {_MAX_REPLACEMENTS} draws for sample"
            with tf.control_dependencies([tf.debugging.Assert(number < 0, [message, index])]):
                return tf.identity(number), index, self._zeros()

        return tf.data.Dataset.range(1).map(fail)

    def _zeros(self) -> Sample:
        types = {"bytes": tf.string}
        return {
            field.name: tf.zeros(field.shape, types.get(field.data_type, field.data_type))
            for field in self._spec
        }
