"""Class names after the transforms."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from infeed.shared.spec import FinishTransform, MixPairs
from infeed_server.sources.base import Source
from infeed_server.sources.class_names import class_conflict

log = logging.getLogger(__name__)

MAX_BYTES = 256 << 10
"""Maximum bytes of a pipeline's class names: a trainer receives them in one message, and more would
be names of samples, not classes."""


def followed_classes(
    source: Source, origins: Mapping[str, str], finish: Sequence[FinishTransform] = ()
) -> dict[str, tuple[str, ...]]:
    """Returns the class names of each field, including those that `finish` makes; `origins` maps a
    field to its field of the source."""
    known = source.classes
    pairs = [step for step in finish if isinstance(step, MixPairs) and step.partner]
    origins = {**origins, **{step.partner: origins.get(step.label, "") for step in pairs}}
    classes = {
        field: tuple(name.encode(errors="replace").decode() for name in known[origin])
        for field, origin in origins.items()
        if origin in known
    }
    size = sum(len(name.encode()) for names in classes.values() for name in names)
    if size > MAX_BYTES:
        named = ", ".join(classes)
        log.warning("class names of %s are not sent: %d bytes are too many", named, size)
        return {}
    return classes


def warn_of_other_classes(pipelines: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Warns of pipelines, by name, that number the same classes differently: they may be parts of
    one data set."""
    first: dict[str, tuple[str, Sequence[str]]] = {}
    for pipeline, classes in pipelines.items():
        for field, names in classes.items():
            other, before = first.setdefault(field, (pipeline, names))
            problem = class_conflict(names, before)
            if problem and not {*names}.isdisjoint(before):
                log.warning("%s: %s where %s in %s", pipeline, field, problem, other)
