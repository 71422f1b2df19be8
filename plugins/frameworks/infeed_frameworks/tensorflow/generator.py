"""A `tf.data.Dataset` over a feed.

    with infeed.connect("localhost:7470", "imagenet-train", batch_size=128) as feed:
        dataset = infeed.tensorflow.from_generator(feed)
        model.fit(dataset, steps_per_epoch=feed.steps_per_epoch, epochs=90, shuffle=False)

A feed is read once, and so is the dataset: a second iteration continues at the feed's position, and
reading the first one further is then an error.

TensorFlow and Keras take batches before the training step, and `feed.state()` counts a batch when
TensorFlow takes it. This module prefetches nothing, to keep the difference small; the cursor of
`FeedCheckpoint` counts the steps that are complete.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.feed import Feed
from infeed.shared.arguments import check_flag
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import BYTES, FieldSpec
from infeed.shared.tensorflow.from_callable import from_iterations, zeros
from infeed_frameworks.keras.elements import DEFAULT_LABEL, KerasElements
from infeed_frameworks.keras.feed_reader import FeedReader, Restarts, reader_of
from infeed_frameworks.tensorflow.strategies import replicas_of


def from_generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool = False,
    ids: str | None = None,
    part: str | None = None,
    replicas: int | None = None,
    restart: bool = False,
) -> tf.data.Dataset:
    """Returns the feed's batches as a dataset, ready for Keras' `fit`.

    label     the field used as y of `(x, y)`; x is the only other field, or a dict of the others.
              None, or no field "label": the element is the dict of all fields
    mask      whether empty slots stay, so that shapes are static, and a float32 weight per slot
              comes last, 1 or 0; False: empty slots are cut
    ids       name of a further field of x for the sample ids, int64 for each slot, -1 for an empty
              one; None: no such field
    part      name of a further field of x for the number of each slot's part of a mixture, as
              `ids`; None: no such field
    replicas  replicas that each take whole batches of this feed, as by
              `distribute_datasets_from_function`; None: as `shard_of` has counted
    restart   whether each iteration begins where the feed began, by a connection of its own: for
              `validation_data`, and for `evaluate` under a strategy, where Keras iterates first to
              build the model

    If several replicas take batches of static shapes, TensorFlow drops a last step that lacks a
    batch for one: with `mask`, empty batches complete it; otherwise the feed ends before it.

    The feed's errors, and that of iterating over a feed that has ended, become TensorFlow errors
    with the same message. Closing the feed ends an iteration.
    """
    elements = KerasElements(feed, label, mask=mask, ids=ids, part=part)
    slots = None if elements.is_cut else feed.batch_size
    specs = {field.name: batch_tensor_spec(field, slots) for field in elements.spec}
    weights = tf.TensorSpec((slots,), tf.float32)
    signature = elements.arrange(specs, weights)
    restarts = Restarts(feed) if check_flag("restart", restart) else None
    reader, source = FeedReader() if restarts else reader_of(feed), feed
    left = feed.steps if restarts else feed.steps_left
    first = 0 if restarts else feed.delivered

    def begin() -> int:
        nonlocal source
        source = restarts.begin() if restarts else feed
        return reader.begin(source)

    def next_element(iteration: int) -> Any:
        batch = reader.take(source, iteration)
        if batch is not None:
            return elements(batch)
        if feed.steps is not None and reader.begun > first:
            raise InvalidRequestError(
                f"an iteration over the feed of {feed.spec.name!r} lacks its first batches, since "
                "an earlier one took them, as Keras does under a strategy to build the model; use "
                "from_generator(feed, restart=True), or give fit a FeedCheckpoint"
            )
        if restarts:
            restarts.end()
        return None

    # Each rank has its own feed.
    dataset = disable_auto_shard(from_iterations(begin, next_element, signature))
    may_drop = not elements.is_cut and not feed.endless
    replicas = reader.batches_per_step = replicas_of(replicas, feed.shard, is_required=may_drop)
    if may_drop and replicas > 1:
        if not mask and (left is None or left < replicas):
            raise InvalidRequestError(
                f"{replicas} replicas share the feed of {feed.spec.name!r}, whose length is "
                f"{'unknown' if left is None else left}, and TensorFlow drops a step without a "
                "batch for each; give mask=True, so that empty batches complete the last step"
            )
        empty = {name: zeros(spec) for name, spec in specs.items()}
        for name in filter(None, (ids, part)):
            empty[name] -= 1
        padding = tf.data.Dataset.from_tensors(elements.arrange(empty, zeros(weights)))
        dataset, left = _in_whole_steps(dataset, left, replicas, padding if mask else None)
    return dataset if left is None else dataset.apply(tf.data.experimental.assert_cardinality(left))


def _in_whole_steps(
    dataset: tf.data.Dataset, length: int | None, replicas: int, padding: tf.data.Dataset | None
) -> tuple[tf.data.Dataset, int | None]:
    """Returns a dataset whose steps have a batch for each replica, and its length: copies of the
    padding complete the last step; without padding, that step is left out."""
    if padding is None:
        assert length is not None
        length -= length % replicas
        return dataset.take(length), length
    missing = replicas - 1 if length is None else -length % replicas
    return dataset.concatenate(padding.repeat(missing)), length and length + missing


def batch_tensor_spec(field: FieldSpec, slots: int | None) -> tf.TensorSpec:
    """Returns the tensor spec of a field in a batch: [slots, ...]."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec((slots, *field.shape), dtype)


def disable_auto_shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps distribution strategies from sharding the dataset again, which would lose samples."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
