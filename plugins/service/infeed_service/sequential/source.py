"""The `dataset` source: a `tf.data.Dataset` returned by a user's function."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import tensorflow as tf
from pydantic import AfterValidator, Field, field_serializer

from infeed.shared.errors import ConfigError, InfeedError, SourceError, UserCodeError
from infeed.shared.spec import BYTES, DATA_TYPES
from infeed_python.function_identity import function_identity
from infeed_server.config.importer import load
from infeed_server.config.user_errors import user_errors, user_traceback
from infeed_server.sources.base import CodeDefinition, check_code_name
from infeed_server.storage.faults import is_storage_fault, one_line
from infeed_service.sequential import determinism

_DEFAULT_NAMES = {
    1: ("features",),
    2: ("features", "label"),
    3: ("features", "label", "sample_weight"),
}

_seed_lock = threading.Lock()
"""Held while a user's function runs, since TensorFlow has one seed for the process."""


class DatasetSource(CodeDefinition):
    """A function without arguments that returns a `tf.data.Dataset`, which is read sequentially.

    Unless `deterministic` is given, infeed analyses the dataset; Python functions in it
    (`py_function`, `from_generator`) count as deterministic.
    """

    kind: ClassVar[str] = "dataset"
    engine: ClassVar[str] = "sequential"

    dataset: Annotated[str | Callable[[], Any], AfterValidator(check_code_name)]
    """The function as `module:attr`; in Python also the function itself."""
    fields: Annotated[list[str], Field(min_length=1)] | None = None
    """Names for the components of a tuple."""
    deterministic: bool | None = None
    """Whether two runs give the same elements; by default, infeed analyses the dataset."""

    @field_serializer("dataset")
    def _dump(self, _: Any) -> str:
        return self.label

    def make(self, seed: int) -> tf.data.Dataset:
        """Calls the function with TensorFlow's seed set and returns a dataset of flat dicts. Raises
        `UserCodeError`, and `ConfigError` for a result that cannot be served."""
        function = self._load_function()
        with _seed_lock, _own_graph() as graph:
            tf.random.set_seed(seed)
            with user_errors(f"the function {self.label}", InfeedError):
                dataset = function()
            if not isinstance(dataset, tf.data.Dataset):
                raise ConfigError(
                    f"{self.label} returned a {type(dataset).__name__}, not a tf.data.Dataset"
                )
            named = _to_named_fields(dataset, self.fields, self.label)
        named._infeed_graph = graph  # kept alive by derived datasets and iterators
        return named

    def explain(self, error: tf.errors.OpError, pipeline: str) -> InfeedError:
        """Converts an error of TensorFlow."""
        quotes_traceback = "Traceback (most recent call last)" in error.message
        problem = user_traceback(error) if quotes_traceback else one_line(error)
        # Another server may not have the fault.
        kind = SourceError if is_storage_fault(error) else UserCodeError
        return kind(f"the dataset of {self.label} failed: {problem}", pipeline=pipeline)

    def is_deterministic(self, dataset: tf.data.Dataset) -> bool:
        """Returns whether two runs of a dataset from `make` give the same elements."""
        if self.deterministic is not None:
            return self.deterministic
        return determinism.is_deterministic(dataset)

    def identity(self) -> str:
        """Returns a hash that changes with the function's code and bound values."""
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
        return function  # type: ignore[no-any-return]


@contextmanager
def _own_graph() -> Iterator[tf.Graph]:
    """Executes the block eagerly, with its own default graph. TensorFlow keeps the Python functions
    of a dataset as long as the default graph, so the process's graph would keep the functions of
    each seed forever."""
    from tensorflow.python.eager import context  # noqa: PLC0415 - it loads TensorFlow

    graph = tf.Graph()
    with graph.as_default(), context.eager_mode():
        yield graph


def _to_named_fields(
    dataset: tf.data.Dataset, names: Sequence[str] | None, label: str
) -> tf.data.Dataset:
    """Returns the dataset with flat dicts of tensors as elements. `names` are for the components of
    a tuple; a dict keeps its own. Raises `ConfigError` for other elements."""
    spec = dataset.element_spec
    names = _component_names(spec, names, label)
    fields = list(_flatten(spec, names, label))
    for name, count in Counter(name for name, _ in fields).items():
        if count > 1:
            raise ConfigError(f"{label}: two components of an element are both named {name!r}")
    for name, field_spec in fields:
        if problem := _problem(field_spec):
            raise ConfigError(f"{label}: field {name!r} of its elements is {problem}")
    if isinstance(spec, dict) and list(spec.items()) == fields:
        return dataset

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_dict(*parts: Any) -> dict[str, tf.Tensor]:
        # tf.data passes a plain tuple as several arguments, and anything else as one.
        return dict(_flatten(parts[0] if len(parts) == 1 else parts, names, label))

    return dataset.map(as_dict)


def _component_names(spec: Any, names: Sequence[str] | None, label: str) -> Sequence[str]:
    if isinstance(spec, Mapping):
        if names is None:
            return ("",)
        raise ConfigError(f"{label}: its elements are dicts, which have names; leave out fields")
    count = len(spec) if isinstance(spec, tuple) else 1
    if names is None:
        names = getattr(spec, "_fields", None) or _DEFAULT_NAMES.get(count)
    if names is None:
        raise ConfigError(f"{label}: its elements are tuples of {count}; name the parts in fields")
    if len(names) != count:
        raise ConfigError(f"{label}: fields has {len(names)} names for elements of {count} parts")
    return names


def _flatten(element: Any, names: Sequence[str], label: str) -> Iterable[tuple[str, Any]]:
    parts = element if isinstance(element, tuple) else (element,)
    for name, part in zip(names, parts, strict=True):
        if not isinstance(part, Mapping):
            yield name, part
            continue
        for key, value in part.items():
            if not isinstance(key, str):
                raise ConfigError(f"{label}: the name {key!r} in an element is not a string")
            nested = isinstance(value, Mapping)
            yield from _flatten(value, (key,), label) if nested else [(key, value)]


def _problem(spec: Any) -> str | None:
    """Returns why a component cannot be served."""
    if not isinstance(spec, tf.TensorSpec):
        kind = f"tuple of {len(spec)}" if isinstance(spec, tuple) else type(spec).__name__
        return f"a {kind.removesuffix('Spec')}; return a dict of named, dense tensors"
    data_type = BYTES if spec.dtype == tf.string else spec.dtype.name
    return None if data_type in DATA_TYPES else f"{data_type}; supported: {', '.join(DATA_TYPES)}"
