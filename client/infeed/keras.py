"""Keras adapters: batches for `fit`, `evaluate` and `predict`, and a callback with the cursor.

`generator` serves the JAX and torch backends and imports neither Keras nor TensorFlow; on the
TensorFlow backend, use `infeed.tensorflow.from_generator` instead. `FeedCheckpoint` saves a model
with the feed's cursor on all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import added_names, require

require("keras", "Keras")

if TYPE_CHECKING:
    from infeed_frameworks.keras.feed_checkpoint import FeedCheckpoint
    from infeed_frameworks.keras.generator import generator

__all__ = ["FeedCheckpoint", "generator"]

__getattr__, __dir__ = added_names(__name__)
