"""Numbers of examples of Hypothesis tests; `make test` runs a share of them."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FULL, QUICK, FUZZ = 100, 20, 2000
"""Default numbers of examples of the profiles."""

_MIN_EXAMPLES = 8
"""Examples that a test keeps in `quick`, unless it has fewer in `full`."""


def register() -> None:
    """Registers the profiles (see `--hypothesis-profile`), and loads `full`."""
    # Without a deadline: tests must pass on a busy machine.
    settings.register_profile("full", max_examples=FULL, deadline=None)
    settings.register_profile("quick", max_examples=QUICK, deadline=None)
    settings.register_profile("fuzz", max_examples=FUZZ, deadline=None)
    settings.load_profile("full")


def examples(count: int, **options: Any) -> settings:
    """Returns settings of `count` examples in the profile `full`, and a share in `quick`."""
    share = count * settings.default.max_examples // FULL
    return settings(max_examples=max(share, min(count, _MIN_EXAMPLES)), **options)
