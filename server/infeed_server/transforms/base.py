"""What a transform is: options that are checked, and a function of one sample and its key."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

import tensorflow as tf
from pydantic import Field

from infeed.errors import ConfigError
from infeed.spec import FinishTransform
from infeed_server.config.model import Definition

Sample = dict[str, tf.Tensor]
"""One sample inside a graph: field name → tensor, without a slots dimension."""

Key: TypeAlias = tf.Tensor
"""The sample's key: int64[2], a function of (seed, epoch, index). All randomness comes from it."""

FieldName = Annotated[str, Field(min_length=1)]


class Transform(Definition):
    """One step on one sample.

    `name` is what YAML calls it. A subclass adds its options as fields and implements `apply`.
    """

    name: ClassVar[str]
    draws: ClassVar[bool] = False
    """Whether every step of this kind takes its result from the key."""
    shorthand: ClassVar[str | None] = None
    """The option that YAML may give alone: `map: module:attr` is `map: {function: module:attr}`."""

    @property
    def random(self) -> bool:
        """Whether the result depends on the key."""
        return self.draws

    @property
    def written(self) -> str:
        """What the user calls it, for messages."""
        return self.name

    def apply(self, sample: Sample, key: Key) -> Sample:
        """The sample after this step. Runs inside a graph; raises `ConfigError` at tracing."""
        raise NotImplementedError(type(self).__name__)

    def fields(self) -> set[str] | None:
        """The fields that are read or written; None when they cannot be known."""
        return None

    def finish(self) -> FinishTransform | None:
        """The same step as a finish transform, where it is elementwise and has one."""
        return None

    def identity(self) -> dict[str, Any]:
        """What the fingerprint takes in: the name and every option."""
        return {self.name: self.model_dump(mode="json", by_alias=True)}


class FieldTransform(Transform):
    """A step on one field: a subclass implements `apply_field`."""

    field: FieldName

    def apply(self, sample: Sample, key: Key) -> Sample:
        return {**sample, self.field: self.apply_field(take(sample, self.field, self.name), key)}

    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        raise NotImplementedError(type(self).__name__)

    def fields(self) -> set[str] | None:
        return {self.field}


def take(sample: Sample, field: str, transform: str) -> tf.Tensor:
    """The field's tensor. Raises `ConfigError` that lists the fields there are."""
    if field not in sample:
        raise ConfigError(
            f"{transform}: no field {field!r}; available: {', '.join(sorted(sample))}",
            stage=transform,
        )
    return sample[field]
