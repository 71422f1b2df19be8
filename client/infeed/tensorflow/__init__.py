"""What TensorFlow reads: the only package of the client that imports it.

`from_generator` makes a `tf.data.Dataset` of a feed; `distribute` makes one that reads a pipeline
of TensorFlow's data service straight from its workers.
"""

from __future__ import annotations

from infeed.errors import MissingExtraError

try:
    import tensorflow  # noqa: F401 - whether it is there
except ImportError:
    raise MissingExtraError(
        "infeed.tensorflow needs TensorFlow: pip install 'infeed[tensorflow]'"
    ) from None

from infeed.tensorflow.distribute import distribute
from infeed.tensorflow.generator import from_generator

__all__ = ["distribute", "from_generator"]
