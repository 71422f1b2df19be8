"""Sample keys as text: 32 hexadecimal digits, since numbers in JSON are rounded by browsers."""

from __future__ import annotations

import numpy as np

from infeed.shared.spec import Array


def format_key(key: Array) -> str:
    """Returns a key, int64[2], as text."""
    first, second = np.asarray(key, np.int64).view(np.uint64).tolist()
    return f"{first:016x}{second:016x}"
