"""The number of examples of a Hypothesis test, of which `make test` takes a share."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FULL, QUICK = 100, 20
"""What the profiles give a test without a number of its own."""

_FEWEST = 8
"""A test whose examples are dear has about so many anyway."""


def register() -> None:
    """Registers the profiles `full` and `quick` (see `--hypothesis-profile`), and takes `full`."""
    # Without a deadline: a test must pass on a machine that is busy.
    settings.register_profile("full", max_examples=FULL, deadline=None)
    settings.register_profile("quick", max_examples=QUICK, deadline=None)
    settings.load_profile("full")


def examples(count: int, **options: Any) -> settings:
    """Gives a test so many examples in the profile `full`, and a share of them in `quick`."""
    share = count * settings.default.max_examples // FULL
    return settings(max_examples=max(share, min(count, _FEWEST)), **options)


__all__ = ["examples", "register"]
