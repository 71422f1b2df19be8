"""The `dataset` source: a tf.data.Dataset returned by a function of the user."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import tensorflow as tf
from pydantic import AfterValidator, Field, field_serializer

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.config.function_identity import function_identity
from infeed_server.config.importer import load
from infeed_server.sources.base import CodeDefinition, check_code_name
from infeed_server.sources.dataset import determinism
from infeed_server.sources.dataset.elements import to_named_fields
from infeed_server.sources.python.user_code import user_errors

_seed_lock = threading.Lock()
"""Held while a user's function runs: TensorFlow has one seed for the process."""


class DatasetSource(CodeDefinition):
    """A function without arguments that returns a `tf.data.Dataset`; it is read sequentially.

    Unless `deterministic` is given, the dataset is analysed; Python functions in it (`py_function`,
    `from_generator`) count as deterministic.
    """

    kind: ClassVar[str] = "dataset"

    dataset: Annotated[str | Callable[[], Any], AfterValidator(check_code_name)]
    """The function; in Python it may be the function itself."""
    fields: Annotated[list[str], Field(min_length=1)] | None = None
    """Names for the components of a tuple."""
    deterministic: bool | None = None
    """Whether two runs give the same elements; by default, infeed analyses the dataset."""

    @field_serializer("dataset")
    def _dump(self, _: Any) -> str:
        return self.label

    def make(self, seed: int) -> tf.data.Dataset:
        """Calls the function with TensorFlow's seed set; returns a dataset of flat dicts.

        Raises `ConfigError` for a function that does not exist and for elements that cannot be
        served, and `UserCodeError` for an exception in the function.
        """
        function = self._load_function()
        with _seed_lock, _own_graph() as graph:
            tf.random.set_seed(seed)
            with user_errors(f"the function {self.label}", InfeedError):
                dataset = function()
            if not isinstance(dataset, tf.data.Dataset):
                raise ConfigError(
                    f"{self.label} returned a {type(dataset).__name__}, not a tf.data.Dataset"
                )
            named = to_named_fields(dataset, self.fields, self.label)
        named._infeed_graph = graph  # datasets and iterators derived from it keep it
        return named

    def is_deterministic(self, dataset: tf.data.Dataset) -> bool:
        """Returns whether two runs of the dataset, returned by `make`, give the same elements."""
        if self.deterministic is not None:
            return self.deterministic
        return determinism.is_deterministic(dataset)

    def identity(self) -> str:
        """Returns a hash that changes with the function's code and the values it is bound to."""
        name = self.dataset if isinstance(self.dataset, str) else ""
        function = json.dumps(function_identity(self._load_function(), name))
        return hashlib.sha256(f"dataset {self.label} {self.fields} {function}".encode()).hexdigest()

    def _load_function(self) -> Callable[[], Any]:
        if not isinstance(self.dataset, str):
            return self.dataset
        with user_errors(f"the module of {self.dataset}", InfeedError):
            function: Any = load(self.dataset)
        if not callable(function):
            raise ConfigError(
                f"{self.dataset} is a {type(function).__name__}, not a function that returns a "
                "tf.data.Dataset"
            )
        return function


@contextmanager
def _own_graph() -> Iterator[tf.Graph]:
    """Executes the block eagerly, with a default graph of its own.

    TensorFlow keeps the Python functions of a dataset (`from_generator`, `py_function`), and what
    they refer to, as long as the default graph. The one of the process would keep them forever, and
    each seed makes new ones.
    """
    from tensorflow.python.eager import context  # noqa: PLC0415 - it loads TensorFlow

    graph = tf.Graph()
    with graph.as_default(), context.eager_mode():
        yield graph
