"""TensorFlow adapters: the only package of the client that imports TensorFlow.

`from_generator` turns a feed into a `tf.data.Dataset`; `distribute` returns one that reads a
pipeline of TensorFlow's data service straight from its workers.
"""

from __future__ import annotations

from infeed.errors import MissingExtraError

try:
    import tensorflow  # noqa: F401 - only to see whether it is installed
except ImportError:
    raise MissingExtraError(
        "infeed.tensorflow needs TensorFlow: pip install 'infeed[tensorflow]'"
    ) from None

from infeed.tensorflow.distribute import distribute
from infeed.tensorflow.generator import from_generator

__all__ = ["distribute", "from_generator"]
