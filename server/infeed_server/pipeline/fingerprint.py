"""The fingerprint: a hash of everything that changes bits."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tensorflow as tf

ALGORITHM = 1
"""Counted up when infeed itself changes order, keys or the result of a transform."""


def fingerprint(**parts: Any) -> str:
    """Lower-case hexadecimal, 32 characters. Parts are JSON values; their order does not count.

    The seed, the batch size and paths are no parts: the first two belong to the request, and the
    same data at another place is the same data.
    """
    content = {"algorithm": ALGORITHM, "tensorflow": tf.__version__, **parts}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
