"""Check of random geometry: a field that is moved alone, beside others that may show the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from infeed_server.pipeline.sample_graph import Specs
from infeed_server.transforms.base import Step, describe_tensor, errors_at
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.fields import Drop, Rename
from infeed_server.transforms.geometry import RandomGeometry

_BOX = 4
"""Numbers of a box."""


def refuse_torn_pictures(steps: Sequence[Step], stages: Sequence[Specs]) -> None:
    """Raises `ConfigError` for a random crop or flip of one field beside another that may have to
    move with it, unless the name of its draws says that it is meant. `stages[i]` are the fields
    before step i."""
    for number, (ordinal, step) in enumerate(steps):
        if not isinstance(step, RandomGeometry) or step.given_name:
            continue
        moved, later = stages[number][step.field], steps[number + 1 :]
        for name, spec in stages[number].items():
            if name != step.field and (reason := _reason(name, spec, moved, later)):
                with errors_at(ordinal, step):
                    raise step.error(
                        f"field {step.field!r} would be moved at random, and not {name!r}, "
                        f"{reason}; if they belong together, move both in a map with the key; if "
                        "it is meant to be moved by itself, name its draws: "
                        f"draw: {step.name.replace('random', step.field)}"
                    )


def _reason(name: str, spec: tf.TensorSpec, moved: tf.TensorSpec, later: Sequence[Step]) -> str:
    """Returns why a field may have to move too; empty where it need not."""
    fates = [*_fates(name, later)]
    if any(isinstance(step, Drop) for step in fates):
        return ""
    shape = spec.shape
    if spec.dtype == tf.string:
        is_picture = any(isinstance(step, DecodeImage) for step in fates)
        return "an image that is decoded later" if is_picture else ""
    if shape.rank is None or shape.rank < 2:
        return ""
    is_grid = shape.as_list() == moved.shape.as_list()[:2]
    if shape.rank > 2 or is_grid:
        return f"which is a picture too ({describe_tensor(spec)})"
    return f"whose rows may be boxes ({describe_tensor(spec)})" if shape[1] == _BOX else ""


def _fates(name: str, steps: Sequence[Step]) -> Iterator[DecodeImage | Drop]:
    """Yields the steps that decode or drop a field, under its later names."""
    for _, step in steps:
        if isinstance(step, Rename):
            name = step.names.get(name, name)
        elif isinstance(step, DecodeImage | Drop) and name in (step.fields() or ()):
            yield step
