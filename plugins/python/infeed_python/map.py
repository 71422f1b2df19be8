"""The `map` transform: a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tensorflow as tf
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self, override

from infeed.shared.errors import ConfigError, UserCodeError, within
from infeed_python.function_identity import (
    function_identity,
    opaque_parts,
    qualified_name,
)
from infeed_python.functions import FunctionOptions, identity_digest
from infeed_python.mapped import MappedSource
from infeed_python.source import DeclaredFields, PythonReader, PythonSource, declared_fields
from infeed_server.config.importer import load, named_in
from infeed_server.config.user_errors import user_traceback
from infeed_server.pipeline.fingerprint import fingerprint
from infeed_server.sources.base import Sample, Source, SourceDefinition, check_code_name
from infeed_server.storage.faults import is_storage_fault
from infeed_server.transforms.base import Key, RandomTransform, Step, draw_number
from infeed_server.transforms.graph_nodes import random_nodes


class Map(RandomTransform):
    """Calls your own function with a sample, a dict of field → tensor; uses the dict it returns.

    The function gets `(sample, key)` if `keyed`, else `(sample)`. The key is an int64[2] that
    differs for every (seed, epoch, sample, name of draws); pass it as the `seed` of any
    `tf.random.stateless_*` or `tf.image.stateless_*` function. With `python`, the sample holds
    NumPy arrays, and a `numpy.random.Generator` made from the key takes its place.

    Result: fields of the function's result.

    Random: with a key.
    """

    shorthand: ClassVar[str | None] = "function"

    function: Annotated[str | Callable[..., Any], AfterValidator(check_code_name)]
    """The function, as `module:attr`; in Python, also the function itself."""
    keyed: bool | None = None
    """Whether the function gets the sample's key; by default, if its second positional parameter
    has no default or is named `key` (with `python`: `rng`)."""
    python: bool = False
    """Whether the function takes NumPy arrays and runs in Python: see below."""
    # Aliases, because `fields` and `identity` are methods.
    result_fields: DeclaredFields | None = Field(None, alias="fields")
    """With `python`: fields of the result; by default, inferred from eight samples."""
    declared_identity: Annotated[str, Field(min_length=1)] | None = Field(None, alias="identity")
    """With `python`: text added to the fingerprint, for what the code does not show."""
    processes: Annotated[int, Field(ge=0, le=256)] | None = None
    """With `python`, after any source except `python`: worker processes that call the function; by
    default none: one thread of the server calls it."""

    @model_validator(mode="after")
    def _check_python(self) -> Self:
        for name, value in (
            ("fields", self.result_fields),
            ("identity", self.declared_identity),
            ("processes", self.processes),
        ):
            if value is not None and not self.python:
                raise ValueError(f"{name}: only for a function in Python; add python: true")
        if self.processes and not isinstance(self.function, str):
            raise ValueError(
                "worker processes load the function by name; write function: as module:attr, or "
                "omit processes"
            )
        return self

    @override
    def resolve(self, base: Path) -> Self:
        return self.model_copy(update={"function": named_in(self.function, base)})

    @property
    def random(self) -> bool:
        return self._takes_key(self._load_function())

    @property
    @override
    def in_source(self) -> str:
        return "python" if self.python else ""

    @override
    def map_source(
        self, source: Source, steps: Sequence[Step], definition: SourceDefinition
    ) -> MappedSource:
        maps = [(ordinal, step) for ordinal, step in steps if isinstance(step, Map)]
        given = [step.processes for _, step in maps]
        processes = max((count for count in given if count is not None), default=0)
        by_name = bool(processes)
        if isinstance(source, PythonReader):
            for ordinal, step in maps:
                if step.processes is not None:
                    raise ConfigError(
                        "the function runs where the python source is read; set source.processes "
                        "instead",
                        at=("transforms", ordinal, self.name, "processes"),
                    )
            by_name = isinstance(definition, PythonSource) and bool(definition.processes)
        functions = tuple(step.function_options(ordinal, by_name=by_name) for ordinal, step in maps)
        identity = fingerprint(functions=[step.identity() for _, step in maps])
        label = f"the source {definition.kind}"
        return MappedSource(source, functions, identity, label, processes)

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        assert not self.python
        function = self._load_function()
        # Not converted in eager execution, which reruns one sample to find its error.
        converted = function
        if not tf.executing_eagerly():
            converted = tf.__internal__.autograph.tf_convert(function, _autograph_context())
        arguments = (dict(sample), key) if self._takes_key(function) else (dict(sample),)
        nodes_before = _random_nodes()
        try:
            returned = converted(*arguments)
        except Exception as error:  # the user's code may raise anything
            # After a storage fault, the sample is rerun again.
            if tf.executing_eagerly() and is_storage_fault(error):
                raise
            raise self._user_error(error) from error
        self._refuse_random_state(_random_nodes() - nodes_before)
        return self._to_sample(returned)

    @property
    @override
    def has_other_code(self) -> bool:
        return not self.python

    @override
    def identity(self) -> dict[str, Any]:
        function = self._load_function()
        identity = function_identity(function, self._module_name)
        identity["draw"] = self.draw_name if self._takes_key(function) else None
        if self.python:
            # NumPy's generators keep their bits in later versions; its distributions may not.
            fields = [str(field) for field in declared_fields(self.result_fields) or ()]
            identity |= {"python": self._own_identity(function), "numpy": np.__version__}
            identity |= {"fields": [*(self.result_fields or ()), *fields]}
        return {self.name: identity}

    def function_options(self, ordinal: int, *, by_name: bool) -> FunctionOptions:
        """Returns what a thread or process needs to call the function in Python. `by_name`: another
        process loads it. Raises `ConfigError` and `UserCodeError`."""
        with within("transforms", ordinal):
            if by_name and not isinstance(self.function, str):
                raise self.error(
                    "worker processes load the function by name; write it as module:attr, or omit "
                    "the source's processes"
                )
            function = self._load_function()
        return FunctionOptions(
            self.function,
            self.function_name,
            ordinal,
            draw_number(self.draw_name) if self._takes_key(function) else None,
            identity_digest(function, self._module_name),
            declared_fields(self.result_fields),
        )

    @property
    def _module_name(self) -> str:
        return self.function if isinstance(self.function, str) else ""

    def _own_identity(self, function: Callable[..., Any]) -> str | None:
        """Returns the declared identity, if any. Raises `ConfigError` if the function needs one."""
        own = self.declared_identity or getattr(function, "fingerprint", None)
        if isinstance(own, str):
            return own
        if unknown := opaque_parts(function):
            raise self.error(
                f"{self.function_name} has no identity: {unknown}; declare one and change it with "
                "the function: identity: v1"
            )
        return None

    def _load_function(self) -> Callable[..., Any]:
        if not isinstance(self.function, str):
            return self.function
        try:
            with within(self.name):
                loaded = load(self.function)
        except ConfigError:
            raise
        except Exception as error:  # the user's module may raise anything
            raise self._user_error(error) from error
        if not callable(loaded):
            raise self.error(f"{self.function} is a {type(loaded).__name__}, not a function")
        return loaded  # type: ignore[no-any-return]

    def _takes_key(self, function: Callable[..., Any]) -> bool:
        if self.keyed is not None:
            return self.keyed
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # a function written in C may have no signature
            return False
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        positional = [parameter for parameter in parameters if parameter.kind in kinds]
        if len(positional) < 2:
            return False
        second = positional[1]
        named = "rng" if self.python else "key"
        return second.default is inspect.Parameter.empty or second.name == named

    @property
    def function_name(self) -> str:
        """The function's name in messages, `module:attr`."""
        name = self.function
        return str(name) if isinstance(name, str) else qualified_name(name)

    def _user_error(self, error: Exception) -> UserCodeError:
        return UserCodeError(
            f"{self.function_name} raised\n{user_traceback(error)}", at=(self.name,)
        )

    def _refuse_random_state(self, nodes: set[str]) -> None:
        if nodes:
            raise self.error(
                f"{self.function_name} draws random numbers that do not come from the sample's "
                f"key: {', '.join(sorted(nodes))}; write it as f(sample, key) and use "
                "tf.random.stateless_* or tf.image.stateless_* with seed=key"
            )

    def _to_sample(self, returned: Any) -> Sample:
        is_dict = isinstance(returned, dict)
        sample: Sample = {}
        for field, value in returned.items() if is_dict else [("", returned)]:
            try:
                if not is_dict or not isinstance(field, str) or not field or value is None:
                    raise TypeError
                if isinstance(value, tf.__internal__.CompositeTensor):
                    raise TypeError
                sample[field] = tf.convert_to_tensor(value)
            except (TypeError, ValueError):
                kind = type(value).__name__
                what = f"a dict whose {field!r} is a {kind}" if is_dict else f"a {kind}"
                raise self.error(
                    f"{self.function_name} returned {what}; it must return a dict of field name "
                    "(text) → tensor"
                ) from None
        return sample


@cache
def _autograph_context() -> Any:
    """Returns AutoGraph's context outside of any trace, which converts by default: an `if` on a
    tensor then works in the user's function, as in `Dataset.map`."""
    # Contexts are per thread, and the caller's thread is in a trace.
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(tf.__internal__.autograph.control_status_ctx).result()


def _random_nodes() -> set[str]:
    """Returns the nodes with random state in the graph that is being traced."""
    return set() if tf.executing_eagerly() else random_nodes(tf.compat.v1.get_default_graph())
