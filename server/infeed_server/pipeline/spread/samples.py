"""Indexed pipelines: batches whose samples are chosen, read and transformed in the graph.

    range(batches) → order → unbatch → map(read, decode, augment; AUTOTUNE) → batch → prefetch

One element of the range is one batch, so the service's dynamic sharding, which shares the range
out, hands out whole batches, each once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from infeed_server.order.graph import GraphOrder
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.spread.draw import Draw, Made
from infeed_server.pipeline.spread.plan import SpreadPlan, Variant, bounded, digest, spread_spec
from infeed_server.pipeline.spread.refusals import refuse_python_steps, require_size
from infeed_server.sources import StoredSource
from infeed_server.sources.base import InGraph
from infeed_server.transforms import Cache

log = logging.getLogger(__name__)

_ENDLESS = 1 << 61
"""Batches: more than anyone reads. A range has to end somewhere."""

_PACK = "write it as TFRecords, of which a graph holds 12 bytes a sample, or "


def spread_samples(
    name: str, definition: Pipeline, source: StoredSource, limit_bytes: int
) -> SpreadPlan:
    """The spread plan over an opened source. Raises `ConfigError` and `UserCodeError`."""
    plan = plan_indexed(name, definition, source, cached=False)
    refuse_python_steps(source, plan.steps)
    held = source.in_graph()
    kind = definition.source.kind
    instead = "" if kind == "tfrecord" else _PACK
    require_size(f"source.{kind}", held.size_bytes, limit_bytes, instead)
    if any(isinstance(step, Cache) for step in definition.transforms):
        log.warning(
            "%s: the workers of the tf.data service keep no samples in memory, so cache is "
            "without effect; each epoch reads and decodes again",
            name,
        )
    return SpreadPlan(
        spread_spec(plan.spec),
        digest(held.paths),
        len(source),
        partial(_dataset, plan, held),
    )


def _dataset(plan: IndexedPlan, held: InGraph, variant: Variant) -> tf.data.Dataset:
    rows = _Rows(plan, variant)
    draw = Draw(plan, GraphOrder(plan.order(variant.seed)), held.reader())
    fields = [field.name for field in plan.spec.wire_spec]

    # The user's functions are converted by `Map` itself; ours need no AutoGraph, which would take
    # most of the time that it takes to make the dataset.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def one(row: dict[str, tf.Tensor]) -> dict[str, Any]:
        made: Made = draw.slot(row, may_be_empty=rows.may_be_empty)
        about = {"start": row["start"], "epoch": row["epoch"]}
        return {"fields": made.fields, **about, "mask": made.filled, "sample_ids": made.sample_id}

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def whole(batch: dict[str, Any]) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        about = {"start": batch["start"][0], "epoch": batch["epoch"][0]}
        about |= {"mask": batch["mask"], "sample_ids": batch["sample_ids"]}
        return {name: batch["fields"][name] for name in fields}, about

    samples = rows.dataset().unbatch().map(one, num_parallel_calls=tf.data.AUTOTUNE)
    batches = samples.batch(variant.batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.deterministic = True
    # The one map that pays is parallel; others would only take more of the range than is needed.
    options.experimental_optimization.map_parallelization = False
    # Few: what a worker has made and not given is lost with it.
    return bounded(batches.map(whole).prefetch(2).with_options(options))


@dataclass(frozen=True)
class _Rows:
    """What stands in the slots of each batch, before anything is read."""

    plan: IndexedPlan
    variant: Variant

    @property
    def positions(self) -> int:
        """0: they never end."""
        return len(self.plan.source) * self.variant.epochs

    @property
    def may_be_empty(self) -> bool:
        """Whether slots of the last batch lie behind the end."""
        padded = self.variant.remainder == "pad"
        return padded and self.positions % self.variant.batch_size != 0

    def dataset(self) -> tf.data.Dataset:
        """An element for each batch: index, key, epoch, start and mask, slots first."""
        size = self.variant.batch_size
        if self.positions:
            partial_one = int(self.may_be_empty)
            batches = tf.data.Dataset.range(self.positions // size + partial_one)
        else:
            # Coordinated reads ask for a dataset that says of itself that it never ends.
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            batches = tf.data.Dataset.range(_ENDLESS).apply(endless)
        if self.variant.hint:
            batches = batches.shard(*[tf.data.experimental.SHARD_HINT] * 2)
        return batches.map(self._batch)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _batch(self, number: tf.Tensor) -> dict[str, tf.Tensor]:
        size = self.variant.batch_size
        start = number * size
        position = start + tf.range(size, dtype=tf.int64)
        mask = tf.fill([size], value=True)
        if self.may_be_empty:
            mask = position < self.positions
            position = tf.minimum(position, self.positions - 1)
        slots = GraphOrder(self.plan.order(self.variant.seed)).slots(position)
        return {
            "index": slots.index,
            "key": slots.key,
            "epoch": tf.fill([size], slots.epoch[0]),
            "start": tf.fill([size], start),
            "mask": mask,
        }
