"""Names of classes: the meaning of the numbers in a field."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INTEGER = re.compile(r"0|[+-]?[1-9][0-9]{0,18}")


def is_integer(text: str) -> bool:
    """Returns whether a text is an int64. A code with leading zeros such as 007 is not: as a number
    it would be class 7."""
    return bool(_INTEGER.fullmatch(text)) and -(1 << 63) <= int(text) < 1 << 63


def class_conflict(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Describes the first number that means another class, for a message that ends with the other's
    name; empty if there is none."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            return f"{number} is {mine!r}, not {other!r} as"
    return ""
