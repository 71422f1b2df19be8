"""Transforms by part: one step of the graph that applies the transforms of a sample's part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf
from pydantic import PrivateAttr

from infeed.shared.errors import ConfigError, within
from infeed_mixtures.union import PART, UnitedPart
from infeed_server.pipeline.sample_graph import apply_step, step_key
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Drawn, Key, Step, Transform, describe_tensor

MIX = "mix"
"""The key of a mixture in the places of errors."""


class ByPart(Transform):
    """Makes the fields of a sample with the transforms of its part."""

    _parts: Sequence[tuple[str, UnitedPart, Sequence[Step]]] = PrivateAttr(())

    @classmethod
    def of(cls, parts: Sequence[tuple[str, UnitedPart, Sequence[Step]]]) -> ByPart:
        """Returns the step for named parts and their steps."""
        step = cls()
        step._parts = tuple(parts)
        return step

    @property
    def random(self) -> bool:
        return any(step.random for _, _, steps in self._parts for _, step in steps)

    @property
    def class_fields(self) -> set[str]:
        return {f for _, source, _ in self._parts for f in (*source.classes, *source.shown)}

    @property
    def draw_name(self) -> str:
        return self.name

    @property
    def has_other_code(self) -> bool:
        return any(step.has_other_code for _, _, steps in self._parts for _, step in steps)

    def apply(self, sample: Sample, key: Key) -> Sample:
        branches = [partial(self._apply, number, sample, key) for number in range(len(self._parts))]
        self._check(sample, key)
        made: Sample = tf.switch_case(tf.cast(sample[PART], tf.int32), branches)
        return made

    def draw(self, sample: Sample, key: Key) -> Drawn:
        """Returns the draws of the transforms of the sample's part. Runs outside graphs."""
        name, source, steps = self._parts[int(sample[PART])]
        drawn: Drawn = {}
        fields = source.fields(sample)
        for step in steps:
            if step[1].random:
                values = step[1].draw(fields, step_key(step, key))
                drawn |= {f"{name}.{step[1].draw_name}.{of}": value for of, value in values.items()}
            fields = apply_step(step, fields, key)
        return drawn

    def identity(self) -> dict[str, Any]:
        steps = [[step.identity() for _, step in steps] for _, _, steps in self._parts]
        return {self.name: steps}

    def _apply(self, number: int, sample: Sample, key: Key) -> Sample:
        """Returns the fields of a sample of one part, sorted by name."""
        name, source, steps = self._parts[number]
        fields = source.fields(sample)
        for step in steps:
            with within(MIX, name, "transforms", step[0]):
                try:
                    fields = apply_step(step, fields, key)
                except (ValueError, TypeError, tf.errors.OpError) as error:
                    raise step[1].error(str(error).strip().splitlines()[0]) from error
        return dict(sorted(fields.items()))

    def _check(self, sample: Sample, key: Key) -> None:
        """Raises `ConfigError` unless all parts have the same fields."""
        first, *others = (
            {field: describe_tensor(value) for field, value in self._traced(number, sample, key)}
            for number in range(len(self._parts))
        )
        for (name, *_), found in zip(self._parts[1:], others, strict=True):
            if found != first:
                raise ConfigError(
                    f"the parts of mix have different fields: {self._parts[0][0]!r} has "
                    f"{_listed(first)}, but {name!r} has {_listed(found)}; give both transforms "
                    "that end with the same fields",
                    at=(MIX, name),
                )

    def _traced(self, number: int, sample: Sample, key: Key) -> list[tuple[str, tf.Tensor]]:
        specs = {field: tf.TensorSpec(value.shape, value.dtype) for field, value in sample.items()}
        with tf.init_scope():
            function = tf.function(partial(self._apply, number), autograph=False)
            traced = function.get_concrete_function(specs, tf.TensorSpec(key.shape, key.dtype))
        return sorted(traced.structured_outputs.items())


def _listed(fields: dict[str, str]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in fields.items())
