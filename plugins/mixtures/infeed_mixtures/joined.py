"""Opened parts as one source, with the transforms that they need before the mixture's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infeed.shared.errors import ConfigError, within
from infeed.shared.spec import TargetSpec
from infeed_mixtures.by_part import MIX, ByPart
from infeed_mixtures.mixed import Course, MixedSource
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.union import unite
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.followed_classes import followed_classes
from infeed_server.pipeline.moved_targets import made_targets, with_targets
from infeed_server.pipeline.sample_cache import take_cache
from infeed_server.pipeline.sample_graph import Specs, trace
from infeed_server.pipeline.shown_targets import (
    refuse_left_targets,
    refuse_other_exif,
    refuse_other_targets,
    written,
)
from infeed_server.sources.base import Source
from infeed_server.sources.concat import ConcatSource, difference
from infeed_server.transforms.decode import DecodeImage


def join(
    parts: Sequence[Pipeline], opened: Sequence[Source], mixture: Mixture, course: Course
) -> Source:
    """Joins opened parts into one source. Parts with equal columns and transforms need no step of
    their own. Raises `ConfigError` for parts with different classes."""
    names, sizes = mixture.names, [len(source) for source in opened]
    steps = [take_cache(name_draws(part.transforms))[0] for part in parts]
    identities = [[step.identity() for _, step in some] for some in steps]
    transforms: list[Any] = [step for _, step in steps[0]]
    if (
        any(part.targets for part in parts)
        or any(one != identities[0] for one in identities)
        or any(difference(source, opened[0]) for source in opened[1:])
    ):
        united = unite(opened)
        moved = [with_targets(some, part.targets) for some, part in zip(steps, parts, strict=True)]
        shown: dict[str, TargetSpec] = {}
        for name, part, some in zip(names, united, moved, strict=True):
            with within(MIX, name):
                stages, origins = trace(part.source, some)
                refuse_other_targets(part.shown, some, stages, origins)
                refuse_other_exif(part, some, origins)
                refuse_left_targets(part.shown, some, stages, origins)
                part.classes = followed_classes(part, origins[-1])
                _add_shown(shown, made_targets(some), stages[-1])
                pictures = {target.picture for target in part.shown.values()}
                if any(
                    isinstance(step, DecodeImage) and step.field in pictures for _, step in some
                ):
                    part.exif = ""  # the mixture gets the picture's pixels
                part.shown = shown
        transforms = [ByPart.of([*zip(names, united, moved, strict=True)])]
        opened = united
    try:
        joined = ConcatSource(opened, names)
    except ConfigError as error:
        raise ConfigError(error.problem, at=(MIX,)) from error
    return MixedSource(joined, sizes, mixture, course, transforms)


def _add_shown(shown: dict[str, TargetSpec], made: Mapping[str, TargetSpec], fields: Specs) -> None:
    """Adds the targets among a part's fields, so that the transforms of the mixture move them too.
    Raises `ConfigError` for a target that another part has in other units."""
    for name in made.keys() & fields.keys():
        if (known := shown.setdefault(name, made[name])) != made[name]:
            raise ConfigError(
                f"{name!r} is {written(made[name])}, but {written(known)} in another part; write "
                "both parts alike, or convert one with a map",
                at=("targets", name),
            )
