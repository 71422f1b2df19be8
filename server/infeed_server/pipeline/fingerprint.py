"""The fingerprint of a pipeline: a hash of everything that changes the bits of its batches."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import tensorflow as tf

ALGORITHM = 4
"""Incremented when infeed itself changes the order, keys or the result of a transform."""


def fingerprint(**parts: Any) -> str:
    """Returns 32 lower-case hexadecimal characters. Parts are JSON values, in any order.

    The seed, the batch size and paths are not included: the first two belong to the request, and
    the path does not change the data.
    """
    content = {
        "algorithm": ALGORITHM,
        "tensorflow": tf.__version__,
        "machine": platform.machine(),
        **parts,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
