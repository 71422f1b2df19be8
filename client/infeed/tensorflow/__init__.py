"""TensorFlow adapters: the only package of the client that imports TensorFlow.

`from_generator` turns a feed into a `tf.data.Dataset`, and `FeedCheckpoint` saves a Keras model
with the feed's cursor; `connect` gives tensors to a loop of one's own, and its cursor to
`tf.train.Checkpoint`; `shard_of` ranks the input pipelines of a strategy. Other packages add
functions through the entry point group `infeed.tensorflow`: `distribute` returns a dataset that
reads a pipeline of TensorFlow's data service straight from its workers.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from infeed.adapters import import_lazily, require

require("tensorflow", "TensorFlow")

from infeed.tensorflow.eager import TensorFeed, connect
from infeed.tensorflow.generator import from_generator
from infeed.tensorflow.strategies import shard_of

if TYPE_CHECKING:
    from infeed.keras.feed_checkpoint import FeedCheckpoint

__all__ = ["FeedCheckpoint", "TensorFeed", "connect", "from_generator", "shard_of"]

__getattr__ = import_lazily(__name__, {"FeedCheckpoint": "infeed.keras.feed_checkpoint"})


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted([*__all__, *entry_points(group=__name__).names])
