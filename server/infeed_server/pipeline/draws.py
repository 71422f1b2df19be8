"""Names of draws: the key of a random transform depends on its name, not on its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from infeed.shared.errors import within
from infeed_server.transforms.base import RandomTransform, Transform


def name_draws(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    """Returns the transforms with the names of their draws: the given name, or the transform's and
    its number among the unnamed ones. Raises `UserCodeError`, and `ConfigError` for a name that two
    transforms share or whose transform draws nothing."""
    unnamed: Counter[str] = Counter()
    places: dict[str, int] = {}
    named: list[Transform] = []
    for ordinal, transform in enumerate(transforms):
        if not isinstance(transform, RandomTransform):
            named.append(transform)
            continue
        with within("transforms", ordinal):
            step = _number(transform, unnamed)
            if step.random and places.setdefault(step.draw_name, ordinal) != ordinal:
                raise transform.error(
                    f"draw: transforms[{places[step.draw_name]}] is also named {step.draw_name!r}, "
                    "and two transforms cannot share draws; choose another name"
                )
        named.append(step)
    return tuple(named)


def _number(transform: RandomTransform, unnamed: Counter[str]) -> RandomTransform:
    """Returns a transform with its number, if it draws and has no name."""
    if not transform.random:
        if transform.given_name:
            raise transform.error(
                f"draw: the function takes no key, so {transform.given_name!r} names no draws; "
                "leave it out"
            )
        return transform
    if transform.given_name:
        return transform
    unnamed[transform.name] += 1
    return transform.numbered(unnamed[transform.name] - 1)
