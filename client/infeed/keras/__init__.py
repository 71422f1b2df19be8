"""Keras adapters: batches for `fit`, `evaluate` and `predict`, and a callback with the cursor.

`generator` is for the JAX and torch backends, and imports neither Keras nor TensorFlow; on the
TensorFlow backend, `infeed.tensorflow.from_generator` has its place. `FeedCheckpoint` saves a model
with the feed's cursor on all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import import_lazily, require

# Not imported here: it takes a second, and its backend, which is chosen before the first import.
require("keras", "Keras")

from infeed.keras.generator import generator

if TYPE_CHECKING:
    from infeed.keras.feed_checkpoint import FeedCheckpoint

__all__ = ["FeedCheckpoint", "generator"]

__getattr__ = import_lazily(__name__, {"FeedCheckpoint": "infeed.keras.feed_checkpoint"})
