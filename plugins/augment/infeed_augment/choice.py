"""Choices: transforms that are applied to a part of the samples, or one of several to each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import tensorflow as tf
from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self, override

from infeed_server.config.model import as_tuple
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.sample_graph import apply_step, step_key
from infeed_server.sources.base import Sample
from infeed_server.transforms import Cache, Map, TransformList
from infeed_server.transforms.base import (
    Drawn,
    Key,
    RandomTransform,
    Step,
    Transform,
    describe_tensor,
)
from infeed_server.transforms.movement import Geometry


def _as_list(value: Any) -> Any:
    return as_tuple(value) if isinstance(value, list | tuple) else (value,)


class _Choice(RandomTransform):
    """A transform that applies others. Their draws are made from its own key and their names, which
    are numbered within it; so what it contains changes no draw outside."""

    @property
    def parts(self) -> tuple[Transform, ...]:
        """The transforms that may be applied."""
        raise NotImplementedError(type(self).__name__)

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        for part in self.parts:
            is_in_python = isinstance(part, Map) and part.python
            if is_in_python or isinstance(part, Cache | Geometry):
                what = "a function in Python" if is_in_python else part.name
                raise ValueError(f"{what} cannot be applied to some samples; put it outside")
        return self

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The transforms, each random one with the name of its draws."""
        return tuple(enumerate(name_draws(self.parts)))

    @property
    @override
    def has_other_code(self) -> bool:
        return any(part.has_other_code for part in self.parts)

    @override
    def fields(self) -> set[str] | None:
        found: set[str] = set()
        for part in self.parts:
            fields = part.fields()
            if fields is None:
                return None
            found |= fields
        return found

    @override
    def identity(self) -> dict[str, Any]:
        parts = [step.identity() for _, step in self.steps]
        own = self.model_dump(mode="json", by_alias=True, exclude={"transform", "transforms"})
        return {self.name: own | {"draw": self.draw_name, "of": parts}}

    def _run(self, steps: Sequence[Step], sample: Sample, key: Key) -> Sample:
        """Applies some of the steps. Raises `ConfigError` where the fields become others."""
        result = sample
        for step in steps:
            result = apply_step(step, result, key)
        before, after = (
            {name: (x.dtype, x.shape.rank) for name, x in fields.items()}
            for fields in (sample, result)
        )
        if before != after:
            became = ", ".join(f"{name}: {describe_tensor(x)}" for name, x in result.items())
            raise self.error(
                "names, types and dimensions of fields should be the same with and without it; "
                f"they became {became}"
            )
        return result

    def _draws(self, steps: Sequence[Step], sample: Sample, key: Key) -> Drawn:
        """Returns the draws of some of the steps, each with the step's name before it."""
        drawn: Drawn = {}
        for step in steps:
            if step[1].random:
                of_step = step[1].draw(sample, step_key(step, key))
                drawn |= {f"{step[1].name}.{name}": value for name, value in of_step.items()}
            sample = apply_step(step, sample, key)
        return drawn


class RandomApply(_Choice):
    """Applies one transform, or several in a row, to a part of the samples.

    Result: types kept; other sizes where the transform makes some.
    """

    transform: Annotated[TransformList, Field(min_length=1), BeforeValidator(_as_list)]
    """The transform, or a list of them."""
    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How often a sample is transformed."""

    @property
    @override
    def parts(self) -> tuple[Transform, ...]:
        return self.transform

    @override
    def resolve(self, base: Path) -> Self:
        resolved = tuple(part.resolve(base) for part in self.transform)
        return type(self)(transform=resolved, probability=self.probability, draw=self.given_name)

    def _is_applied(self, key: Key) -> tf.Tensor:
        return tf.random.stateless_uniform([], key) < self.probability

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        transformed = partial(self._run, self.steps, sample, key)
        chosen: Sample = tf.cond(self._is_applied(key), transformed, lambda: dict(sample))
        return chosen

    @override
    def draw(self, sample: Sample, key: Key) -> Drawn:
        is_applied = self._is_applied(key)
        return {"applied": is_applied} | (
            self._draws(self.steps, sample, key) if bool(is_applied) else {}
        )


class OneOf(_Choice):
    """Applies one of several transforms, drawn for each sample.

    Result: types kept; other sizes where a transform makes some.

    Random: yes
    """

    transforms: Annotated[TransformList, Field(min_length=2)]
    """The transforms, which are equally likely without `weights`."""
    weights: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] | None,
        BeforeValidator(as_tuple),
    ] = None
    """A weight for each transform."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights is not None and len(self.weights) != len(self.transforms):
            counts = f"{len(self.weights)} weights, and {len(self.transforms)} transforms"
            raise ValueError(f"weights: {counts}; give each transform one")
        return self

    @property
    @override
    def parts(self) -> tuple[Transform, ...]:
        return self.transforms

    @override
    def resolve(self, base: Path) -> Self:
        resolved = tuple(part.resolve(base) for part in self.transforms)
        return type(self)(transforms=resolved, weights=self.weights, draw=self.given_name)

    def _chosen(self, key: Key) -> tf.Tensor:
        weights = self.weights or (1.0,) * len(self.transforms)
        limits = [sum(weights[: end + 1]) / sum(weights) for end in range(len(weights) - 1)]
        return tf.reduce_sum(tf.cast(tf.random.stateless_uniform([], key) >= limits, tf.int32))

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        branches = [partial(self._run, [step], sample, key) for step in self.steps]
        chosen: Sample = tf.switch_case(self._chosen(key), branches)
        return chosen

    @override
    def draw(self, sample: Sample, key: Key) -> Drawn:
        step = self.steps[int(self._chosen(key))]
        chosen = tf.constant(f"transforms[{step[0]}].{step[1].name}")
        return {"chosen": chosen} | self._draws([step], sample, key)
