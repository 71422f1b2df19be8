"""The choice of transforms that run at the trainer, to minimise bytes on the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from infeed.shared.spec import FinishTransform
from infeed_server.transforms.base import Step
from infeed_server.transforms.fields import Rename

Specs = Mapping[str, tf.TensorSpec]
"""Field name → tensor spec, of one sample."""


def plan_finish(
    steps: Sequence[Step], stages: Sequence[Specs]
) -> tuple[list[Step], tuple[FinishTransform, ...]]:
    """Returns the host steps and the finish transforms, both in order. `stages[i]` are the fields
    before step i; the last are those after all steps. A step can move to the trainer if it has a
    finish transform and no later host step touches its field. Of a field's movable steps, the last
    ones move, as many as minimise its bytes on the wire; steps whose move saves no bytes stay on
    the server."""
    moved: dict[int, FinishTransform] = {}
    for output, chain in _movable_chains(steps, stages[-1]).items():
        # The field's bytes before each step of the chain, and after the last.
        sizes = [_sample_bytes(stages[position][finish.field]) for position, finish in chain]
        sizes.append(_sample_bytes(stages[-1][output]))
        kept = max(count for count, size in enumerate(sizes) if size == min(sizes))
        moved |= {position: replace(finish, field=output) for position, finish in chain[kept:]}
    host = [step for position, step in enumerate(steps) if position not in moved]
    return host, tuple(moved[position] for position in sorted(moved))


def _movable_chains(
    steps: Sequence[Step], outputs: Specs
) -> dict[str, list[tuple[int, FinishTransform]]]:
    """Returns each output field's movable steps, in order. Goes backwards through the steps, and
    follows a field through `rename` to its earlier name."""
    chains: dict[str, list[tuple[int, FinishTransform]]] = {field: [] for field in outputs}
    # The name at this step → the name at the end, of fields that no later host step touches.
    names = {field: field for field in outputs}
    for position in reversed(range(len(steps))):
        step = steps[position][1]
        if isinstance(step, Rename):
            old_names = {new: old for old, new in step.names.items()}
            names = {old_names.get(name, name): output for name, output in names.items()}
            continue
        touched = step.fields()
        finish = step.finish_transform()
        if finish is not None and finish.field in names:
            chains[names[finish.field]].insert(0, (position, finish))
            continue
        for name in list(names) if touched is None else touched:
            names.pop(name, None)
    return chains


def _sample_bytes(spec: tf.TensorSpec) -> int:
    """Returns the bytes of a field, per sample. A size that varies counts as 1: it is the same
    along the whole chain, so the choice does not depend on it."""
    sizes = spec.shape if spec.shape.rank is not None else ()
    return math.prod(int(size or 1) for size in sizes) * int(spec.dtype.size)
