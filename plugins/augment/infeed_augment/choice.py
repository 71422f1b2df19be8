"""Choices: transforms applied to some of the samples, or one of several drawn for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import tensorflow as tf
from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self, override

from infeed_server.config.model import as_tuple
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.sample_graph import apply_step, step_key
from infeed_server.sources.base import Sample
from infeed_server.transforms import Cache, TransformList
from infeed_server.transforms.base import (
    Drawn,
    Key,
    RandomTransform,
    Step,
    Transform,
    describe_tensor,
)
from infeed_server.transforms.movement import Geometry, RandomGeometry

_Move: TypeAlias = Callable[[Geometry, "tf.Tensor", Drawn], "tf.Tensor"]
"""A function that moves pixels or points like a step, by the step's draws."""


def _as_list(value: Any) -> Any:
    return as_tuple(value) if isinstance(value, list | tuple) else (value,)


class _Choice(RandomTransform):
    """A transform that applies one of several rows of other transforms. These draw from its own key
    and from names that it numbers itself, so its content changes no draw outside."""

    @property
    def parts(self) -> tuple[Transform, ...]:
        """The transforms that may be applied."""
        raise NotImplementedError(type(self).__name__)

    def rows(self) -> list[tuple[Step, ...]]:
        """Returns the steps of each row."""
        raise NotImplementedError(type(self).__name__)

    def chosen(self, key: Key) -> tf.Tensor:
        """Returns the number of the row to apply."""
        raise NotImplementedError(type(self).__name__)

    def describe(self, chosen: int) -> Drawn:
        """Returns the choice as part of the result of `draw`."""
        raise NotImplementedError(type(self).__name__)

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        fields = set()
        for part in self.parts:
            moving = part.movement
            resizes = isinstance(moving, Geometry) and not _keeps_size(moving)
            if part.in_source or resizes or isinstance(part, Cache):
                what = "a Python function" if part.in_source else part.name
                raise ValueError(f"{what} cannot apply to only some samples; put it outside")
            fields |= {moving.field} if isinstance(moving, Geometry) else set()
        if len(fields) > 1:
            raise ValueError(f"moves {' and '.join(sorted(fields))}; give each its own choice")
        return self

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The transforms; random ones have names for their draws."""
        return tuple(enumerate(name_draws(self.parts)))

    @property
    @override
    def has_other_code(self) -> bool:
        return any(part.has_other_code for part in self.parts)

    @property
    @override
    def movement(self) -> Transform | None:
        for part in self.parts:
            if isinstance(moving := part.movement, Geometry):
                return _Movement(field=moving.field, choice=self, draw=self.given_name)
        return None

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

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        branches = [partial(self._run, row, sample, key) for row in self.rows()]
        chosen: Sample = tf.switch_case(self.chosen(key), branches)
        return {**sample, **chosen}

    def _run(self, row: Sequence[Step], sample: Sample, key: Key) -> Sample:
        """Applies steps and returns the fields that they may change. Raises `ConfigError` if they
        change names, types or dimensions."""
        result = dict(sample)
        for step in row:
            result = apply_step(step, result, key)
        before, after = (
            {name: (x.dtype, x.shape.rank) for name, x in fields.items()}
            for fields in (sample, result)
        )
        if before != after:
            became = ", ".join(f"{name}: {describe_tensor(x)}" for name, x in result.items())
            raise self.error(
                "names, types and dimensions of fields should be the same with and without it, but "
                f"became {became}"
            )
        touched = self.fields()
        return {name: x for name, x in result.items() if touched is None or name in touched}

    @override
    def draw(self, sample: Sample, key: Key) -> Drawn:
        """Returns the choice, and the draws of its steps with the step's name as prefix."""
        chosen = int(self.chosen(key))
        drawn = self.describe(chosen)
        for step in self.rows()[chosen]:
            if step[1].random:
                of_step = step[1].draw(sample, step_key(step, key))
                drawn |= {f"{step[1].name}.{name}": value for name, value in of_step.items()}
            sample = apply_step(step, sample, key)
        return drawn


class _Movement(RandomGeometry):
    """The movement of a picture by the steps that a choice takes for the sample's key."""

    choice: _Choice

    @property
    @override
    def draw_name(self) -> str:
        return self.choice.draw_name

    @override
    def draw_shape(self, shape: tf.Tensor, key: Key) -> Drawn:
        return {"key": key, "shape": shape}

    @override
    def apply_pixels(
        self, pixels: tf.Tensor, drawn: Drawn, *, nearest: bool = False, fill: float | None = None
    ) -> tf.Tensor:
        def moved(step: Geometry, pixels: tf.Tensor, of_step: Drawn) -> tf.Tensor:
            return step.apply_pixels(pixels, of_step, nearest=nearest, fill=fill)

        return self._move(moved, pixels, drawn)

    @override
    def apply_points(self, points: tf.Tensor, drawn: Drawn, shape: tf.Tensor) -> tf.Tensor:
        def moved(step: Geometry, points: tf.Tensor, of_step: Drawn) -> tf.Tensor:
            return step.apply_points(points, of_step, shape)

        return self._move(moved, points, drawn)

    def _move(self, move: _Move, x: tf.Tensor, drawn: Drawn) -> tf.Tensor:
        def by(row: Sequence[Step]) -> tf.Tensor:
            result = tf.identity(x)
            for step in row:
                if isinstance(moving := step[1].movement, Geometry):
                    of_step = moving.draw_shape(drawn["shape"], step_key(step, drawn["key"]))
                    result = move(moving, result, of_step)
            return result

        branches = [partial(by, row) for row in self.choice.rows()]
        return tf.ensure_shape(tf.switch_case(self.choice.chosen(drawn["key"]), branches), x.shape)


def _keeps_size(moving: Geometry) -> bool:
    return type(moving).result_size is Geometry.result_size


class RandomApply(_Choice):
    """Applies one transform, or several in a row, to some of the samples.

    Result: types and shapes kept.
    """

    transform: Annotated[TransformList, Field(min_length=1), BeforeValidator(_as_list)]
    """The transform, or a list of them."""
    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that a sample is transformed."""

    @property
    @override
    def parts(self) -> tuple[Transform, ...]:
        return self.transform

    @override
    def resolve(self, base: Path) -> Self:
        resolved = tuple(part.resolve(base) for part in self.transform)
        return type(self)(transform=resolved, probability=self.probability, draw=self.given_name)

    @override
    def rows(self) -> list[tuple[Step, ...]]:
        return [(), self.steps]

    @override
    def chosen(self, key: Key) -> tf.Tensor:
        return tf.cast(tf.random.stateless_uniform([], key) < self.probability, tf.int32)

    @override
    def describe(self, chosen: int) -> Drawn:
        return {"applied": tf.constant(bool(chosen))}


class OneOf(_Choice):
    """Applies one of several transforms, drawn for each sample.

    Result: types and shapes kept.

    Random: yes
    """

    transforms: Annotated[TransformList, Field(min_length=2)]
    """The transforms; equally likely unless `weights` are given."""
    weights: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] | None,
        BeforeValidator(as_tuple),
    ] = None
    """A weight for each transform."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights is not None and len(self.weights) != len(self.transforms):
            counts = f"{len(self.weights)} weights for {len(self.transforms)} transforms"
            raise ValueError(f"weights: {counts}; give one for each transform")
        return self

    @property
    @override
    def parts(self) -> tuple[Transform, ...]:
        return self.transforms

    @override
    def resolve(self, base: Path) -> Self:
        resolved = tuple(part.resolve(base) for part in self.transforms)
        return type(self)(transforms=resolved, weights=self.weights, draw=self.given_name)

    @override
    def rows(self) -> list[tuple[Step, ...]]:
        return [(step,) for step in self.steps]

    @override
    def chosen(self, key: Key) -> tf.Tensor:
        weights = self.weights or (1.0,) * len(self.transforms)
        limits = [sum(weights[: end + 1]) / sum(weights) for end in range(len(weights) - 1)]
        return tf.reduce_sum(tf.cast(tf.random.stateless_uniform([], key) >= limits, tf.int32))

    @override
    def describe(self, chosen: int) -> Drawn:
        return {"chosen": tf.constant(f"transforms[{chosen}].{self.transforms[chosen].name}")}
