"""Callback of a profile with what it measures next."""

from __future__ import annotations

from collections.abc import Callable

OnStep = Callable[[str], None]
"""Takes the name of what is measured next, such as "2: resize image"."""


def ignore_step(name: str) -> None:
    """Does nothing."""
    del name
