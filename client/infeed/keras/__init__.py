"""Keras adapters: batches for `fit`, `evaluate` and `predict`, and a callback with the cursor.

`generator` is for the JAX and torch backends, and imports neither Keras nor TensorFlow; on the
TensorFlow backend, `infeed.tensorflow.from_generator` has its place. `FeedCheckpoint` saves a model
with the feed's cursor on all three.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import MissingExtraError

# Not imported here: it takes a second, and its backend, which is chosen before the first import.
if find_spec("keras") is None:
    raise MissingExtraError("infeed.keras needs Keras: pip install 'infeed[keras]'")

from infeed.keras.generator import generator

if TYPE_CHECKING:
    from infeed.keras.feed_checkpoint import FeedCheckpoint

__all__ = ["FeedCheckpoint", "generator"]


def __getattr__(name: str) -> Any:
    if name != "FeedCheckpoint":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from infeed.keras.feed_checkpoint import FeedCheckpoint  # noqa: PLC0415 - it imports Keras

    return FeedCheckpoint


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
