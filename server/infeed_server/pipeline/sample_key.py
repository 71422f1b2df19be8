"""Sample keys as text: 32 hexadecimal digits, since numbers in JSON are rounded by browsers."""

from __future__ import annotations

import re

import numpy as np

from infeed.shared.spec import Array

_DIGITS = re.compile(r"[0-9a-f]{32}", re.ASCII)


def format_key(key: Array) -> str:
    """Returns a key, int64[2], as text."""
    first, second = np.asarray(key, np.int64).view(np.uint64).tolist()
    return f"{first:016x}{second:016x}"


def parse_key(text: str) -> Array:
    """Returns the key of a text. Raises `ValueError`."""
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"key={text!r} must be 32 hexadecimal digits")
    numbers = [int(text[:16], 16), int(text[16:], 16)]
    return np.array(numbers, np.uint64).view(np.int64)
