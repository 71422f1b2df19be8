"""TensorFlow adapters: a `tf.data.Dataset`, eager tensors, and checkpoints.

`from_generator` turns a feed into a `tf.data.Dataset`, and `FeedCheckpoint` saves a Keras model
with the feed's cursor. `connect` returns tensors for your own training loop, and
`tf.train.Checkpoint` can save its cursor. `shard_of` gives each input pipeline of a strategy its
rank. `distribute` returns a dataset that reads straight from workers of the data service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import added_names, require

require("tensorflow", "TensorFlow")

if TYPE_CHECKING:
    from infeed_frameworks.keras.feed_checkpoint import FeedCheckpoint
    from infeed_frameworks.tensorflow.eager import TensorFeed, connect
    from infeed_frameworks.tensorflow.generator import from_generator
    from infeed_frameworks.tensorflow.strategies import shard_of
    from infeed_service.trainer.distribute import distribute

__all__ = ["FeedCheckpoint", "TensorFeed", "connect", "distribute", "from_generator", "shard_of"]

__getattr__, __dir__ = added_names(__name__)
