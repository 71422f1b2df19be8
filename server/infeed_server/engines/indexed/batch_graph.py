"""The tf.data graph of one batch size, from the columns of batches to the rows of their fields.

With substitutes for bad samples, each batch has its own `map`, which leaves out a sample that
fails and keeps the others. That takes processor time of each sample, 10 to 20 µs: nothing to the
decoding of a photo, but much to a cheap transform.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.engines.tf_data import graph_options, unbatched
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.sources import Source

_GRAPH_BATCHES = 2
"""Batches whose samples are made at a time: with one, processors idle while its last is made."""

Rows = dict[str, Any]
"""`slot`, `index`, `key` and `columns` of each sample of a batch."""


def batch_dataset(
    plan: IndexedPlan, slots: int, batches: Iterator[Rows], *, keeps_good: bool
) -> tf.data.Dataset:
    """Returns the dataset of the rows that are made of each batch: slots, indices and fields."""
    sample_function = plan.sample_function()

    # `map` converts the user's functions itself; this package's need no AutoGraph.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def transform(row: Rows) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        return row["slot"], row["index"], sample_function(row["columns"], row["key"])

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def good_rows(batch: Rows) -> Any:
        rows = tf.data.Dataset.from_tensor_slices(batch)
        good = rows.map(transform, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
        # A last row, of zeros: a batch without a good sample is an element, too.
        end = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), good.element_spec)
        ended = good.concatenate(tf.data.Dataset.from_tensors(end))
        return ended.batch(slots + 1).get_single_element()

    read = from_callable(lambda _: next(batches, None), _signature(plan.source))
    if keeps_good:
        made = read.map(good_rows, num_parallel_calls=_GRAPH_BATCHES)
    else:
        mapped = unbatched(read).map(transform, num_parallel_calls=tf.data.AUTOTUNE)
        made = mapped.batch(slots, drop_remainder=True)
    return made.prefetch(2).with_options(graph_options())


def _signature(source: Source) -> dict[str, Any]:
    """Returns the tensor specs of a batch that is read."""
    return {
        "slot": tf.TensorSpec([None], tf.int64),
        "index": tf.TensorSpec([None], tf.int64),
        "key": tf.TensorSpec([None, 2], tf.int64),
        "columns": {
            name: tf.TensorSpec([None, *spec.shape], spec.dtype)
            for name, spec in source.columns.items()
        },
    }
