"""The names of draws: by these, not by its place, a random transform has its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from infeed_server.transforms.base import RandomTransform, Transform, errors_at


def name_draws(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    """Returns the transforms, each random one with the name of its draws: the one that is given, or
    its own and its number among those without. Raises `ConfigError` for a name of two transforms,
    or of one that draws nothing, and `UserCodeError`."""
    unnamed: Counter[str] = Counter()
    places: dict[str, int] = {}
    named: list[Transform] = []
    for ordinal, transform in enumerate(transforms):
        if not isinstance(transform, RandomTransform):
            named.append(transform)
            continue
        with errors_at(ordinal, transform):
            is_random, name = transform.random, transform.given_name
            if name is not None and not is_random:
                raise transform.error(
                    f"draw: the function has no key to draw from, so {name!r} names nothing; leave "
                    "it out"
                )
            if is_random and name is None:
                name = f"{transform.name}-{unnamed[transform.name]}"
                unnamed[transform.name] += 1
            if name in places:
                raise transform.error(
                    f"draw: transforms[{places[name]}] has the name {name!r} too, and two "
                    "transforms share no draws; give another name"
                )
        if name is not None:
            places[name] = ordinal
        named.append(transform.model_copy(update={"given_name": name}))
    return tuple(named)
