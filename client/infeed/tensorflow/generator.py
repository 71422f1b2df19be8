"""A `tf.data.Dataset` over a feed.

    with infeed.connect("localhost:7470", "imagenet-train", batch_size=128) as feed:
        dataset = infeed.tensorflow.from_generator(feed, steps_per_epoch=feed.steps_per_epoch)
        model.fit(dataset, epochs=90, shuffle=False)

A feed is read once, and so is the dataset: a second iteration continues at the feed's position, and
a first one that is read further then is an error.

TensorFlow and Keras take batches before the training step, and `feed.state()` counts a batch when
TensorFlow takes it. This module prefetches nothing, to keep the difference small; the cursor of
`FeedCheckpoint` counts the steps that are complete.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.feed import Feed
from infeed.keras.feed_reader import reader_of
from infeed.keras.generator import DEFAULT_LABEL, keras_arranger
from infeed.shared.arguments import check_integer
from infeed.shared.spec import BYTES, FieldSpec
from infeed.shared.tensorflow.from_callable import from_iterations


def from_generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool | None = None,
    steps_per_epoch: int | None = None,
) -> tf.data.Dataset:
    """Returns the feed's batches as a dataset with static shapes, ready for Keras' `fit`.

    label            the field used as y of `(x, y)`; x is the only other field, or a dict of the
                     others. None, or no field "label": the element is the dict of all fields
    mask             whether a float32 weight per slot, 1 or 0, comes last; None: if slots can be
                     empty
    steps_per_epoch  each iteration ends at the next multiple of so many steps since position 0;
                     None: with the feed

    The feed's errors, and an iteration of a feed that has ended, are TensorFlow errors with the
    message. Closing the feed ends an iteration.
    """
    mask = feed.may_mask if mask is None else mask
    names = [field.name for field in feed.element_spec]
    to_keras_element = keras_arranger(names, label, mask)
    signature = to_keras_element(
        {field.name: batch_tensor_spec(field, feed.batch_size) for field in feed.element_spec},
        tf.TensorSpec((feed.batch_size,), tf.float32),
    )
    reader = reader_of(feed)
    if steps_per_epoch is not None:
        steps_per_epoch = check_integer(
            "steps_per_epoch", steps_per_epoch, 1, or_none="iterations to the end of the feed"
        )
    reader.steps_per_epoch = steps_per_epoch

    def next_element(iteration: int) -> Any:
        batch = reader.take(feed, iteration)
        if batch is None:
            return None
        return to_keras_element(dict(batch), batch.mask.astype("float32"))

    # Each rank has its own feed.
    dataset = from_iterations(lambda: reader.begin(feed), next_element, signature)
    dataset = disable_auto_shard(dataset)
    left = feed.steps_left
    if steps_per_epoch is not None:
        # For Keras. In the graph it would be an assertion, which a resumed epoch violates.
        length = steps_per_epoch if left is None else min(left, steps_per_epoch)
        dataset.cardinality = lambda: tf.constant(length, tf.int64)
        return dataset
    if left is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(left))


def batch_tensor_spec(field: FieldSpec, slots: int) -> tf.TensorSpec:
    """Returns the tensor spec of a field in a batch: [slots, ...]."""
    dtype = tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
    return tf.TensorSpec((slots, *field.shape), dtype)


def disable_auto_shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps distribution strategies from sharding the dataset again, which would lose samples."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
