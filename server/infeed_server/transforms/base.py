"""The base classes of transforms: validated options, a function of a sample and its key, checks of
its input when traced and at run time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import tensorflow as tf
from pydantic import Field, PrivateAttr
from typing_extensions import Self

from infeed.shared.errors import ConfigError
from infeed.shared.spec import FinishTransform
from infeed_server.config.code_digest import code_digest, own_packages
from infeed_server.config.model import Definition, did_you_mean
from infeed_server.sources.base import Sample, Source, SourceDefinition

Key: TypeAlias = "tf.Tensor"
"""The sample's key: int64[2], a function of (seed, epoch, index) and, for a random transform, of
the name of its draws. The only source of randomness."""

Drawn: TypeAlias = "dict[str, tf.Tensor]"
"""What a random transform draws for a sample, by name."""

IMAGE_TYPES = (
    *("uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Data types that the functions of `tf.image` support."""

FieldName = Annotated[str, Field(min_length=1, examples=["image"])]


class Transform(Definition):
    """One operation on one sample.

    A subclass adds its options as fields and implements `apply`. The docs show the first paragraph
    of its docstring, its paragraph `Result:` (data type; shape), and each option's docstring.
    """

    name: ClassVar[str]
    """The name in YAML: the class's name in snake case."""
    shorthand: ClassVar[str | None] = None
    """The option that YAML may give alone: `map: module:attr` is `map: {function: module:attr}`."""
    keeps_classes: ClassVar[bool] = False
    """Whether the field that it changes still holds class numbers, or one entry for each class."""

    @property
    def class_fields(self) -> Collection[str]:
        """The fields it makes that have the classes of the source's field of the same name."""
        return ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = snake_case(cls.__name__)

    def resolve(self, base: Path) -> Self:  # noqa: ARG002 - of those with a path or a name
        """Returns the transform with its relative path or its function resolved against `base`."""
        return self

    @property
    def random(self) -> bool:
        """Whether the result depends on the key."""
        return False

    @property
    def movement(self) -> Transform | None:
        """The `Geometry` that moves a picture and its targets; None if it moves neither."""
        return None

    @property
    def draw_name(self) -> str:
        """The name that determines a random transform's key; the steps before it do not."""
        raise NotImplementedError(type(self).__name__)

    @property
    def display_name(self) -> str:
        """The name in messages, as the user wrote it."""
        return self.name

    @property
    def has_other_code(self) -> bool:
        """Whether its part of the graph is not infeed's code, and can call any TensorFlow
        kernel."""
        return type(self).__module__.partition(".")[0] not in own_packages()

    @property
    def in_source(self) -> str:
        """The option that makes it run where samples are read, before the graph; empty if it runs
        in the graph."""
        return ""

    def map_source(
        self, source: Source, steps: Sequence[Step], definition: SourceDefinition
    ) -> Source:
        """Returns a source that applies these steps where samples are read; this is the first of
        them. Closing it closes `source` too. Raises `ConfigError`, `SourceError` and
        `UserCodeError`."""
        raise NotImplementedError(type(self).__name__)

    def error(self, problem: str) -> ConfigError:
        """Returns the error for a problem of this transform."""
        return ConfigError(problem, at=(self.name,))

    def get_field(self, sample: Sample, field: str) -> tf.Tensor:
        """Returns the field's tensor. Raises `ConfigError` with the available fields."""
        if field not in sample:
            hint = did_you_mean(field, sorted(sample))
            available = ", ".join(sorted(sample))
            raise self.error(f"no field {field!r}{hint}; available: {available}")
        return sample[field]

    def apply(self, sample: Sample, key: Key) -> Sample:
        """Transforms a sample. Runs inside a graph; raises `ConfigError` when traced."""
        raise NotImplementedError(type(self).__name__)

    def draw(self, sample: Sample, key: Key) -> Drawn:  # noqa: ARG002
        """Returns what a random transform draws for a sample, from which `apply` makes the result;
        the key, if its draws are unknown."""
        return {"key": key}

    def explain(self, sample: Sample) -> str:  # noqa: ARG002
        """Returns why `apply` failed for a sample, if its error does not show it."""
        return ""

    def fields(self) -> set[str] | None:
        """Returns the fields that it reads or writes; None if they are unknown."""
        return None

    def finish_transform(self) -> FinishTransform | None:
        """Returns the equivalent transform for the trainer, if there is one."""
        return None

    def identity(self) -> dict[str, Any]:
        """Returns what the fingerprint hashes: the name, every option, and any code that is not
        infeed's."""
        identity: dict[str, Any] = {self.name: self.model_dump(mode="json", by_alias=True)}
        return identity | ({"code": code_digest(type(self))} if self.has_other_code else {})


Step = tuple[int, Transform]
"""A transform and its ordinal: its index in the user's list, for messages."""


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
            self.field: self.apply_field(self.get_field(sample, self.field), key),
        }

    def apply_field(self, x: tf.Tensor, key: Key) -> tf.Tensor:
        raise NotImplementedError(type(self).__name__)

    def draw(self, sample: Sample, key: Key) -> Drawn:
        return self.draw_field(self.get_field(sample, self.field), key)

    def draw_field(self, x: tf.Tensor, key: Key) -> Drawn:  # noqa: ARG002
        """Returns the draws, as `draw` does, for `apply_field`."""
        return {"key": key}

    def fields(self) -> set[str] | None:
        return {self.field}


class RandomTransform(Transform):
    """A transform that draws from its key."""

    given_name: Annotated[str, Field(min_length=1)] | None = Field(None, alias="draw")
    """Name that determines the draws; by default the transform's name and its number among the
    unnamed ones of its kind. Other steps do not change the draws of a name."""

    @property
    def random(self) -> bool:
        return True

    _number: int = PrivateAttr(0)

    def numbered(self, number: int) -> Self:
        """Returns the transform with its number among the unnamed ones of its kind."""
        copy = self.model_copy()
        copy._number = number
        return copy

    @property
    def draw_name(self) -> str:
        return self.given_name or f"{self.name}-{self._number}"

    def identity(self) -> dict[str, Any]:
        identity = super().identity()
        identity[self.name]["draw"] = self.draw_name
        return identity


def draw_number(name: str) -> int:
    """Returns a signed 64-bit hash of the name of draws."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def require_bytes(x: tf.Tensor, step: FieldTransform, *, instead: str) -> tf.Tensor:
    """Returns the field as one byte string. Raises `ConfigError` with the advice `instead`."""
    holds = f"field {step.field!r} holds {describe_tensor(x)}, not"
    if x.dtype != tf.string:
        raise step.error(f"{holds} encoded bytes; {instead}")
    if x.shape.rank not in (0, None):
        raise step.error(f"{holds} one byte string")
    return tf.ensure_shape(x, [])


def require_numbers(x: tf.Tensor, step: FieldTransform) -> tf.Tensor:
    """Returns the field as numbers of any shape. Raises `ConfigError` for byte strings."""
    if x.dtype == tf.string:
        raise step.error(
            f"field {step.field!r} holds bytes; put decode_image, decode_raw or string_to_number "
            "before it"
        )
    return x


def require_type(x: tf.Tensor, step: FieldTransform, types: Sequence[str] = IMAGE_TYPES) -> None:
    """Raises `ConfigError` unless the field has one of these types."""
    if x.dtype.name not in types:
        raise step.error(
            f"field {step.field!r} holds {x.dtype.name}; supported: {', '.join(types)}"
        )


def require_image(
    x: tf.Tensor, step: FieldTransform, types: Sequence[str] = IMAGE_TYPES
) -> tf.Tensor:
    """Returns the field as pixels [height, width, channels], or raises `ConfigError`."""
    if x.dtype == tf.string:
        raise step.error(f"field {step.field!r} holds encoded bytes; put decode_image before it")
    require_type(x, step, types)
    if x.shape.rank not in (3, None):
        raise step.error(
            f"field {step.field!r} has the shape {format_shape(x.shape)}, not "
            "[height, width, channels]"
        )
    return tf.ensure_shape(x, [None, None, None])


def require_at_run_time(condition: tf.Tensor, message: str, data: tf.Tensor) -> list[tf.Operation]:
    """Fails the sample with the message and the values of `data` unless the condition holds.

    Returns the control dependencies of the next op. The message should have no quotes: TensorFlow
    shows them as \\'.
    """
    if tf.executing_eagerly():
        # An eager Assert puts "Expected 'tf.Tensor(False, ...)' to be true" before the message.
        if not condition:
            value = data.numpy()
            shown = repr(value) if isinstance(value, bytes) else str(value.tolist())
            raise tf.errors.InvalidArgumentError(None, None, f"{message} {shown}")
        return []
    # tf.debugging.Assert would add two functions to the graph.
    return [tf.raw_ops.Assert(condition=condition, data=[message, data])]


def describe_tensor(x: tf.Tensor) -> str:
    """Describes a tensor: `uint8[224, ?, 3]`, with a question mark for a size that varies."""
    return f"{'bytes' if x.dtype == tf.string else x.dtype.name}{format_shape(x.shape)}"


def format_shape(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "[...]"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
