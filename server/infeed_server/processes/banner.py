"""TensorFlow's banner, which it writes at every import, before it reads its log level."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""TensorFlow's environment variable. With "0", the banner is shown."""


@contextmanager
def without_banner() -> Iterator[None]:
    """Discards standard error while the block imports TensorFlow."""
    if "tensorflow.python" in sys.modules or os.environ.get(LOG_LEVEL) == "0":
        yield
        return
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
