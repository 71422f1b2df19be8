"""The `dataset` source: any tf.data.Dataset that a function of the user's returns."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tensorflow as tf
from pydantic import Field, field_serializer, field_validator
from typing_extensions import Self

from infeed.errors import ConfigError, InfeedError
from infeed_server.config.importer import code_digest, load
from infeed_server.sources import determinism
from infeed_server.sources.definition import SourceDefinition
from infeed_server.sources.elements import named
from infeed_server.sources.user_code import raised

_seeding = threading.Lock()
"""TensorFlow has one seed for the process; a function runs alone with its own."""


class DatasetSource(SourceDefinition):
    """A function without arguments that returns a `tf.data.Dataset`: the sequential kind.

    `dataset`: `module:attr`, or from Python the function. `fields`: names for the places of a
    tuple. `deterministic`: whether two runs give the same elements; found out when left out,
    with Python functions inside (`py_function`, `from_generator`) taken to be.
    """

    kind: ClassVar[str] = "dataset"

    dataset: str | Callable[[], Any]
    fields: Annotated[list[str], Field(min_length=1)] | None = None
    deterministic: bool | None = None

    @field_validator("dataset")
    @classmethod
    def _check(cls, value: str | Callable[[], Any]) -> str | Callable[[], Any]:
        if isinstance(value, str) and not all(value.partition(":")):
            raise ValueError("a dataset is named module:attr")
        return value

    @field_serializer("dataset")
    def _dump(self, _: Any) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What messages call it: `module:attr`."""
        if isinstance(self.dataset, str):
            return self.dataset
        name = getattr(self.dataset, "__qualname__", type(self.dataset).__qualname__)
        return f"{getattr(self.dataset, '__module__', '?')}:{name}"

    def resolve(self, base: Path) -> Self:  # noqa: ARG002 - a module has no place of its own
        return self

    def make(self, seed: int) -> tf.data.Dataset:
        """A new dataset whose elements are flat dicts; TensorFlow's seed is `seed` meanwhile.

        Raises `ConfigError` for a name that leads nowhere and for elements that cannot be served,
        and `UserCodeError` for what the function raises.
        """
        function = self._function()
        with _seeding:
            tf.random.set_seed(seed)
            try:
                dataset = function()
            except InfeedError:
                raise
            except Exception as error:
                raise raised(f"the function {self.label}", error) from error
            if not isinstance(dataset, tf.data.Dataset):
                raise ConfigError(
                    f"{self.label} returned a {type(dataset).__name__}, not a tf.data.Dataset"
                )
            return named(dataset, self.fields, self.label)

    def is_deterministic(self, dataset: tf.data.Dataset) -> bool:
        """Whether two runs of the dataset, one that `make` gave, have the same elements."""
        if self.deterministic is not None:
            return self.deterministic
        return determinism.is_deterministic(dataset)

    def identity(self) -> str:
        """A hash that changes when the code of the function's file does."""
        code = code_digest(self._function())
        return hashlib.sha256(f"dataset {self.label} {self.fields} {code}".encode()).hexdigest()

    def _function(self) -> Callable[[], Any]:
        if not isinstance(self.dataset, str):
            return self.dataset
        try:
            function = load(self.dataset)
        except InfeedError:
            raise
        except Exception as error:
            raise raised(f"the module of {self.dataset}", error) from error
        if not callable(function):
            raise ConfigError(
                f"{self.dataset} is a {type(function).__name__}, not a function that returns a "
                "tf.data.Dataset"
            )
        found: Callable[[], Any] = function
        return found
