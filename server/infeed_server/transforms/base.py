"""The base classes of transforms: validated options, and a function of a sample and its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, TypeAlias

import tensorflow as tf
from pydantic import Field

from infeed.shared.errors import ConfigError
from infeed.shared.spec import FinishTransform
from infeed_server.config.model import Definition, Finding, did_you_mean
from infeed_server.sources.base import Sample

Key: TypeAlias = "tf.Tensor"
"""The sample's key: int64[2], a function of (seed, epoch, index) and, for a random transform, of
its ordinal. The only source of randomness."""

FieldName = Annotated[str, Field(min_length=1)]


class Transform(Definition):
    """One operation on one sample.

    A subclass adds its options as fields and implements `apply`. The documents have its docstring's
    first paragraph, its paragraph `Result:` (data type; shape), and the docstring of each option.
    """

    name: ClassVar[str]
    """The name in YAML: the class's, in snake case. Those that draw from the key begin with
    `random_`."""
    shorthand: ClassVar[str | None] = None
    """The option that YAML may give alone: `map: module:attr` is `map: {function: module:attr}`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = snake_case(cls.__name__)

    @property
    def random(self) -> bool:
        """Whether the result depends on the key."""
        return self.name.startswith("random_")

    @property
    def display_name(self) -> str:
        """The name in messages, as the user wrote it."""
        return self.name

    def error(self, problem: str) -> ConfigError:
        """Returns the error for a problem of this transform."""
        return ConfigError(f"{self.name}: {problem}", stage=self.name)

    def apply(self, sample: Sample, key: Key) -> Sample:
        """Transforms a sample. Runs inside a graph; raises `ConfigError` when traced."""
        raise NotImplementedError(type(self).__name__)

    def check(self) -> Iterator[Finding]:
        """Yields what is missing outside of the definition, without loading TensorFlow."""
        return iter(())

    def fields(self) -> set[str] | None:
        """Returns the fields that are read or written; None if they are unknown."""
        return None

    def finish_transform(self) -> FinishTransform | None:
        """Returns the equivalent transform for the trainer, if there is one."""
        return None

    def identity(self) -> dict[str, Any]:
        """Returns what the fingerprint hashes: the name and every option."""
        return {self.name: self.model_dump(mode="json", by_alias=True)}


Step = tuple[int, Transform]
"""A transform and its ordinal: its index in the user's list, part of its random key."""


def snake_case(name: str) -> str:
    """Returns `OneHot` as `one_hot`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class FieldTransform(Transform):
    """A transform of one field. A subclass implements `apply_field`."""

    field: FieldName
    """The field to transform."""

    def apply(self, sample: Sample, key: Key) -> Sample:
        return {
            **sample,
            self.field: self.apply_field(get_field(sample, self.field, self.name), key),
        }

    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        raise NotImplementedError(type(self).__name__)

    def fields(self) -> set[str] | None:
        return {self.field}


def get_field(sample: Sample, field: str, transform: str) -> tf.Tensor:
    """Returns the field's tensor. Raises `ConfigError` with the available fields."""
    if field not in sample:
        hint = did_you_mean(field, sorted(sample))
        raise ConfigError(
            f"{transform}: no field {field!r}{hint}; available: {', '.join(sorted(sample))}",
            stage=transform,
        )
    return sample[field]
