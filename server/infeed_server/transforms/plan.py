"""Which transforms run at the trainer: those that would only make the batch larger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from infeed.spec import FinishTransform
from infeed_server.transforms.base import Transform
from infeed_server.transforms.fields import Drop, Rename

Step = tuple[int, Transform]
"""A transform and its ordinal, its place in the user's list."""

Specs = Mapping[str, tf.TensorSpec]
"""Field name → tensor spec, of one sample."""


def plan_finish(
    steps: Sequence[Step], stages: Sequence[Specs]
) -> tuple[list[Step], tuple[FinishTransform, ...]]:
    """The host steps and the finish transforms, both in order.

    `stages[i]` are the fields before step i; the last are those after all. A step can move to the
    trainer when it has a finish form and no later host step touches its field. Of a field's
    movable steps, as many at the end move as make its bytes on the wire fewest; steps that save
    no bytes stay on the server.
    """
    moved: dict[int, FinishTransform] = {}
    for field, chain in _chains(steps, stages[-1]).items():
        for place in _worth_moving(chain, stages, steps):
            finish = steps[place][1].finish()
            assert finish is not None
            moved[place] = replace(finish, field=field)
    host = [step for place, step in enumerate(steps) if place not in moved]
    return host, tuple(moved[place] for place in sorted(moved))


def _chains(steps: Sequence[Step], ends: Specs) -> dict[str, list[int]]:
    """For each field at the end, the places of its movable steps, in order.

    Walks backwards, following a field through `rename` to the name it had before.
    """
    chains: dict[str, list[int]] = {field: [] for field in ends}
    names = {field: field for field in ends}  # the name here → the name at the end, while open
    for place in reversed(range(len(steps))):
        step = steps[place][1]
        if isinstance(step, Rename):
            back = {new: old for old, new in step.names.items()}
            names = {back.get(name, name): end for name, end in names.items()}
            continue
        if isinstance(step, Drop):
            continue
        touched = step.fields()
        finish = step.finish()
        if finish is not None and finish.field in names:
            chains[names[finish.field]].insert(0, place)
            continue
        for name in list(names) if touched is None else touched:
            names.pop(name, None)
    return chains


def _worth_moving(
    chain: Sequence[int], stages: Sequence[Specs], steps: Sequence[Step]
) -> Sequence[int]:
    """The end of the chain that is better run at the trainer."""
    if not chain:
        return ()
    # The field's bytes on the wire with the first 0, 1, ... steps of the chain kept on the server.
    sizes = [_field_bytes(chain[0], stages, steps[chain[0]][1])]
    sizes += [_field_bytes(place + 1, stages, steps[place][1]) for place in chain]
    kept = max(count for count, size in enumerate(sizes) if size == min(sizes))
    return chain[kept:]


def _field_bytes(stage: int, stages: Sequence[Specs], step: Transform) -> int:
    """Bytes of one sample of the step's field at a stage.

    A size that varies counts as 1: it is the same all along the chain, so it changes no choice.
    """
    finish = step.finish()
    assert finish is not None
    spec = stages[stage][finish.field]
    sizes = spec.shape if spec.shape.rank is not None else ()
    elements = math.prod(int(size or 1) for size in sizes)
    return elements * int(spec.dtype.size)
