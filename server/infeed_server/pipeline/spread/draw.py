"""What fills a slot: its sample, or what stands in for one that is bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from infeed_server.order.graph import GraphOrder
from infeed_server.pipeline.plan import IndexedPlan
from infeed_server.sources.base import Sample

_MAX_REPLACEMENTS = 1000
"""For one slot. More means that the source holds hardly a good sample, or that the worker does
not see the data at all."""


@dataclass(frozen=True)
class Made:
    """A slot: its fields, whether it is filled, and the sample that is delivered (-1: none)."""

    fields: Sample
    filled: tf.Tensor
    sample_id: tf.Tensor


class Draw:
    """Makes samples in the graph, as the engine's ward and its work do on the local engine."""

    def __init__(
        self, plan: IndexedPlan, order: GraphOrder, read: Callable[[tf.Tensor], Sample]
    ) -> None:
        self._action = plan.spec.on_error
        self._spec = plan.spec.wire_spec
        self._order = order
        self._read = read
        self._function = plan.sample_function()

    def slot(self, row: dict[str, tf.Tensor], *, may_be_empty: bool) -> Made:
        """The slot of a row: index and epoch int64, key int64[2], mask bool."""
        index, key, mask = row["index"], row["key"], row["mask"]

        def drawn() -> tuple[Sample, tf.Tensor, tf.Tensor]:
            return self._drawn(index, key)

        def empty() -> tuple[Sample, tf.Tensor, tf.Tensor]:
            return self._empty(), tf.constant(False), index

        fields, filled, other = tf.cond(mask, drawn, empty) if may_be_empty else drawn()
        if self._action == "mask":
            fields = tf.cond(filled, lambda: fields, self._empty)
        return Made(fields, filled, tf.where(filled, other, tf.constant(-1, tf.int64)))

    def _drawn(self, index: tf.Tensor, key: tf.Tensor) -> tuple[Sample, tf.Tensor, tf.Tensor]:
        """Fields, whether they count, and the sample that they are of."""
        if self._action == "raise":
            return self._make(index, key), tf.constant(True), index
        attempts = self._attempts(index, key).concatenate(self._hopeless(index))
        number, other, fields = attempts.take(1).get_single_element()
        filled = number == 0 if self._action == "mask" else tf.constant(True)
        return fields, filled, other

    def _make(self, index: tf.Tensor, key: tf.Tensor) -> Sample:
        made = self._function(self._read(index), key)
        return {field.name: made[field.name] for field in self._spec}

    def _attempts(self, index: tf.Tensor, key: tf.Tensor) -> tf.data.Dataset:
        """The sample, the one that stands in for it, the one for that, ...: those that are good."""

        def following(
            state: tuple[tf.Tensor, tf.Tensor], number: tf.Tensor
        ) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]:
            drawn = tf.cond(number > 0, lambda: self._order.substitute(*state), lambda: state)
            return drawn, (number, *drawn)

        def make(
            number: tf.Tensor, index: tf.Tensor, key: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, Sample]:
            return number, index, self._make(index, key)

        numbers = tf.data.Dataset.range(_MAX_REPLACEMENTS + 1)
        # The worker's log says what was wrong with each.
        return numbers.scan((index, key), following).map(make).ignore_errors(log_warning=True)

    def _hopeless(self, index: tf.Tensor) -> tf.data.Dataset:
        """Fails, when it is come to."""

        def fail(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Sample]:
            told = [f"no good sample found in {_MAX_REPLACEMENTS} draws for sample", index]
            with tf.control_dependencies([tf.debugging.Assert(number < 0, told)]):
                return tf.identity(number), index, self._empty()

        return tf.data.Dataset.range(1).map(fail)

    def _empty(self) -> Sample:
        types = {"bytes": tf.string}
        return {
            field.name: tf.zeros(field.shape, types.get(field.data_type, field.data_type))
            for field in self._spec
        }
