"""A feed as a `tf.data.Dataset`.

    feed = infeed.connect("localhost:8470", "imagenet-train", batch_size=128)
    dataset = infeed.tensorflow.from_generator(feed)
    model.fit(dataset, epochs=90, steps_per_epoch=feed.steps_per_epoch)
    feed.close()

A feed is read once, and so is the dataset: a second iteration goes on where the feed stands.

TensorFlow and Keras take batches ahead of the training step (Keras prefetches as many as it sees
fit, often one or two), and `feed.state()` counts a batch when it is handed to TensorFlow. Nothing
is prefetched here, so that the difference stays as small as TensorFlow leaves it: where the last
sample counts, iterate over the feed itself, or save the cursor when an epoch has ended.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from infeed.batch import Batch
from infeed.errors import FeedClosedError
from infeed.feed import Feed
from infeed.pull import pull
from infeed.tensorflow.arrange import arrangement, tensor_spec, unsharded


def from_generator(
    feed: Feed, label: str | None = "label", *, mask: bool | None = None
) -> tf.data.Dataset:
    """The feed's batches with static shapes, ready for Keras' `fit`.

    Each element is `(x, y)`: y is the field `label`, x the only other field or a dict of the
    others. Without such a field, or with `label=None`, it is the dict of all fields. With `mask`
    (None: where slots can be empty) a float32 weight per slot, 1 or 0, comes last:
    `(x, y, weight)` or `(dict, weight)`.

    An error of the feed ends the iteration as a TensorFlow error whose message holds it. Closing
    the feed ends it quietly, also while TensorFlow waits for a batch.
    """
    if mask is None:
        mask = feed.may_mask
    names = [field.name for field in feed.element_spec]
    arrange = arrangement(names, label, mask)
    signature = arrange(
        {field.name: tensor_spec(field, feed.batch_size) for field in feed.element_spec},
        tf.TensorSpec((feed.batch_size,), tf.float32),
    )

    def take(number: int) -> Any:
        batch = _next(feed, first=number == 0)
        return None if batch is None else arrange(dict(batch), batch.mask.astype("float32"))

    # Every rank has a feed of its own.
    dataset = unsharded(pull(take, signature))
    if feed.steps_left is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(feed.steps_left))


def _next(feed: Feed, *, first: bool = False) -> Batch | None:
    try:
        return next(feed, None)
    except FeedClosedError:
        if first:
            raise
        return None


__all__ = ["from_generator"]
