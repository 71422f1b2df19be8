"""The choice of transforms that run at the trainer, to minimise bytes on the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from infeed.shared.errors import within
from infeed.shared.spec import Drawing, FinishTransform, MixPairs, read_fields
from infeed_server.transforms.base import Step, Transform, describe_tensor
from infeed_server.transforms.fields import Rename

Specs = Mapping[str, tf.TensorSpec]
"""Field name → tensor spec, of one sample."""


def plan_finish(
    steps: Sequence[Step], stages: Sequence[Specs]
) -> tuple[list[Step], tuple[FinishTransform, ...]]:
    """Returns the host steps and the finish transforms, both in order. `stages[i]` are the fields
    before step i; the last entry holds those after all steps. A step can move to the trainer if it
    has a finish transform and no later host step touches its fields. The last of a field's movable
    steps move, as many as minimise its bytes on the wire; steps that would save no bytes stay on
    the server. A step that only draws on the server moves with all steps after it. Raises
    `ConfigError` for one that cannot."""
    moved: dict[int, FinishTransform] = {}
    for output, chain in _movable_chains(steps, stages).items():
        # The field's bytes before each step of the chain, and after the last.
        sizes = [_sample_bytes(stages[place][getattr(t, option)]) for place, option, t in chain]
        sizes.append(_sample_bytes(stages[-1][output]))
        kept = max(count for count, size in enumerate(sizes) if size == min(sizes))
        draws = [count for count, (_, _, t) in enumerate(chain) if isinstance(t, Drawing)]
        for position, option, finish in chain[min([kept, *draws]) :]:
            named: Any = {option: output}
            moved[position] = replace(moved.get(position, finish), **named)
    host = [step for place, step in enumerate(steps) if place not in moved or step[1].random]
    return host, tuple(moved[position] for position in sorted(moved))


def _movable_chains(
    steps: Sequence[Step], stages: Sequence[Specs]
) -> dict[str, list[tuple[int, str, FinishTransform]]]:
    """Returns each output field's movable steps, in order, with the option that names the field.
    Walks through the steps backwards, and follows a field through `rename` to its earlier name."""
    outputs = stages[-1]
    chains: dict[str, list[tuple[int, str, FinishTransform]]] = {field: [] for field in outputs}
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
        if isinstance(finish, Drawing):
            with within("transforms", steps[position][0]):
                _check_reach(step, finish, names)
                if isinstance(finish, MixPairs):
                    _check_labels(step, finish, stages[position], chains[names[finish.label]])
        if finish is not None and finish.field in names:
            for option in ("field", "label") if isinstance(finish, MixPairs) else ("field",):
                output = names[getattr(finish, option)]
                chains[output].insert(0, (position, option, finish))
            continue
        for name in list(names) if touched is None else touched:
            names.pop(name, None)
    return chains


def _check_reach(step: Transform, finish: Drawing, names: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a step that the trainer cannot run; `names` are the fields that no
    later step touches."""
    if names.get(finish.draws) != finish.draws or not names.keys() >= {*read_fields(finish)}:
        fields = " and ".join(map(repr, read_fields(finish)[:-1]))
        raise step.error(
            f"the trainer changes {fields} in this step, so only steps that the trainer can run "
            "may follow there (cast, normalize, one_hot, mix_pairs, random_erasing with at: "
            "trainer, and rename); put the others before it"
        )


def _check_labels(step: Transform, finish: MixPairs, stage: Specs, later: Sequence[object]) -> None:
    """Raises `ConfigError` for labels that cannot be mixed; `later` are the steps that change them
    afterwards."""
    if finish.partner and later:
        raise step.error(
            f"partner: a later step would change {finish.label!r} but not {finish.partner!r}; put "
            "it before this one"
        )
    label = stage[finish.label]
    if finish.partner:
        made = {finish.partner, finish.own_share}
        if label.dtype == tf.string or made & stage.keys():
            raise step.error(
                f"partner: {finish.label!r} should be numbers, and {' and '.join(sorted(made))} "
                f"new fields; rename those that exist. The fields are "
                + ", ".join(f"{name}: {describe_tensor(x)}" for name, x in stage.items())
            )
    elif label.dtype != tf.float32 or not label.shape.rank:
        raise step.error(
            f"label: field {finish.label!r} holds {describe_tensor(label)}, not a float32 for each "
            "class; put one_hot before it, or give partner: label_b for both labels and a share"
        )


def _sample_bytes(spec: tf.TensorSpec) -> int:
    """Returns the bytes of a field, per sample. A size that varies counts as 1: it is the same
    along the whole chain, so the choice does not depend on it."""
    sizes = spec.shape if spec.shape.rank is not None else ()
    return math.prod(int(size or 1) for size in sizes) * int(spec.dtype.size)
