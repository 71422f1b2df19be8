"""TensorFlow adapters: the only package of the client that imports TensorFlow.

`from_generator` turns a feed into a `tf.data.Dataset`, and `FeedCheckpoint` saves a Keras model
with the feed's cursor; `connect` gives tensors to a loop of one's own, and its cursor to
`tf.train.Checkpoint`; `shard_of` ranks the input pipelines of a strategy. Other packages add
functions through the entry point group `infeed.tensorflow`: `distribute` returns a dataset that
reads a pipeline of TensorFlow's data service straight from its workers.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import MissingExtraError

try:
    import tensorflow  # noqa: F401 - only to see whether it is installed
except ImportError:
    raise MissingExtraError(
        "infeed.tensorflow needs TensorFlow: pip install 'infeed[tensorflow]'"
    ) from None

from infeed.tensorflow.eager import TensorFeed, connect
from infeed.tensorflow.generator import from_generator
from infeed.tensorflow.strategies import shard_of

if TYPE_CHECKING:
    from infeed.keras.feed_checkpoint import FeedCheckpoint

_ADDED = entry_points(group="infeed.tensorflow")

__all__ = ["FeedCheckpoint", "TensorFeed", "connect", "from_generator", "shard_of"]


def __getattr__(name: str) -> Any:
    # Imported on first use: Keras alone takes a second.
    if name in _ADDED.names:
        return _ADDED[name].load()
    if name != "FeedCheckpoint":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from infeed.keras.feed_checkpoint import FeedCheckpoint  # noqa: PLC0415

    return FeedCheckpoint


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted([*__all__, *_ADDED.names])
