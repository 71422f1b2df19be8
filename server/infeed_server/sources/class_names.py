"""Names of classes: the meaning of the numbers in a field."""

from __future__ import annotations

from collections.abc import Sequence


def class_conflict(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Returns the first number that is another class, up to the name of the other; empty if there
    is none."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            return f"{number} is {mine!r}, not {other!r} as"
    return ""
