"""A `tf.data.Dataset` over a feed.

    feed = infeed.connect("localhost:8470", "imagenet-train", batch_size=128)
    dataset = infeed.tensorflow.from_generator(feed)
    model.fit(dataset, epochs=90, steps_per_epoch=feed.steps_per_epoch)
    feed.close()

A feed is read once, and so is the dataset: a second iteration continues at the feed's position.

TensorFlow and Keras prefetch batches before the training step (Keras often one or two), and
`feed.state()` counts a batch when TensorFlow takes it. This module prefetches nothing, to keep
the difference small. Where every sample counts, iterate over the feed itself, or save the cursor
at the end of an epoch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.batch import Batch
from infeed.errors import FeedClosedError
from infeed.feed import Feed
from infeed.tensorflow.elements import batch_tensor_spec, disable_auto_shard, keras_arranger
from infeed.tensorflow.from_callable import from_callable


def from_generator(
    feed: Feed, label: str | None = "label", *, mask: bool | None = None
) -> tf.data.Dataset:
    """Returns the feed's batches as a dataset with static shapes, ready for Keras' `fit`.

    Each element is `(x, y)`: y is the field `label`, x the only other field or a dict of the
    others. Without such a field, or with `label=None`, it is the dict of all fields. With `mask`
    (None: if slots can be empty) a float32 weight per slot, 1 or 0, comes last:
    `(x, y, weights)` or `(dict, weights)`.

    An error of the feed ends the iteration as a TensorFlow error with its message. Closing the
    feed ends it without an error, also while TensorFlow waits for a batch.
    """
    if mask is None:
        mask = feed.may_mask
    names = [field.name for field in feed.element_spec]
    to_keras_element = keras_arranger(names, label, mask)
    signature = to_keras_element(
        {field.name: batch_tensor_spec(field, feed.batch_size) for field in feed.element_spec},
        tf.TensorSpec((feed.batch_size,), tf.float32),
    )

    def next_element(number: int) -> Any:
        batch = _next_batch(feed, first=number == 0)
        if batch is None:
            return None
        return to_keras_element(dict(batch), batch.mask.astype("float32"))

    # Each rank has its own feed.
    dataset = disable_auto_shard(from_callable(next_element, signature))
    if feed.steps_left is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(feed.steps_left))


def _next_batch(feed: Feed, *, first: bool) -> Batch | None:
    try:
        return next(feed, None)
    except FeedClosedError:
        if first:
            raise
        return None
