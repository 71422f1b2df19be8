"""What TensorFlow reads: the only package of the client that imports it.

`from_generator` makes a `tf.data.Dataset` of a feed.
"""

from __future__ import annotations

from infeed.errors import MissingExtraError

try:
    import tensorflow  # noqa: F401 - whether it is there
except ImportError:
    raise MissingExtraError(
        "infeed.tensorflow needs TensorFlow: pip install 'infeed[tensorflow]'"
    ) from None

from infeed.tensorflow.generator import from_generator

__all__ = ["from_generator"]
