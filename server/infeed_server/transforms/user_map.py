"""The `map` transform: a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf
from pydantic import field_validator
from typing_extensions import override

from infeed.errors import ConfigError, UserCodeError
from infeed_server.config.code_digest import code_digest
from infeed_server.config.importer import load
from infeed_server.config.user_errors import user_traceback
from infeed_server.sources.base import Sample
from infeed_server.sources.dataset.determinism import random_nodes
from infeed_server.sources.storage_faults import is_storage_fault
from infeed_server.transforms.base import Key, Transform
from infeed_server.transforms.field_checks import describe_tensor

# Created outside of any trace, this context means "convert by default", as in Dataset.map: an `if`
# on a tensor works in the user's function as it does there.
_AUTOGRAPH = tf.__internal__.autograph.control_status_ctx()


class Map(Transform):
    """Calls your own function with a sample, a dict of field → tensor; uses the dict it returns.

    It is called with `(sample, key)` if `keyed`, else with `(sample)`. The key is int64[2],
    different for every (seed, epoch, sample, position in the list). It can be the `seed` of every
    `tf.random.stateless_*` and `tf.image.stateless_*` function.

    Result: those of the function's result.

    Random: with a key.
    """

    name: ClassVar[str] = "map"
    shorthand: ClassVar[str | None] = "function"

    function: str | Callable[..., Any]
    """The function; in Python it may be the function itself."""
    keyed: bool | None = None
    """Whether the function gets the sample's key; by default, if it has a second positional
    parameter that has no default or is named `key`."""

    @field_validator("function")
    @classmethod
    def _check_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            if not module or not attribute:
                raise ValueError("should be of the form module:attr")
        return value

    @property
    def random(self) -> bool:
        return self._takes_key(self._load_function())

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        function = self._load_function()
        # Not converted in eager execution, which reruns one sample to find what it raises.
        converted = function
        if not tf.executing_eagerly():
            converted = tf.__internal__.autograph.tf_convert(function, _AUTOGRAPH)
        arguments = (dict(sample), key) if self._takes_key(function) else (dict(sample),)
        nodes_before = _random_nodes()
        try:
            returned = converted(*arguments)
        except Exception as error:  # the user's code may raise anything
            # The rerun of one sample is repeated after a fault.
            if tf.executing_eagerly() and is_storage_fault(error):
                raise
            raise self._user_error(error) from error
        self._refuse_random_state(_random_nodes() - nodes_before)
        return self._to_sample(returned)

    @override
    def identity(self) -> dict[str, Any]:
        """Returns the function's name, its code and the plain values it holds.

        The values are a partial's arguments, a closure's variables or a callable object's
        attributes, if they are numbers or text: other objects have no form that is the same in
        every process. Globals are not followed.
        """
        function = self._load_function()
        return {self.name: {**_function_identity(function), "keyed": self._takes_key(function)}}

    def _load_function(self) -> Callable[..., Any]:
        if not isinstance(self.function, str):
            return self.function
        try:
            loaded = load(self.function)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error.message}", stage=self.name) from None
        except Exception as error:  # the user's module may raise anything
            raise self._user_error(error) from error
        if not callable(loaded):
            raise ConfigError(
                f"{self.name}: {self.function} is a {type(loaded).__name__}, not a function",
                stage=self.name,
            )
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
        return second.default is inspect.Parameter.empty or second.name == "key"

    @property
    def function_name(self) -> str:
        """The name of the function in messages: `module:attr`."""
        return self.function if isinstance(self.function, str) else _qualified_name(self.function)

    def _user_error(self, error: Exception) -> UserCodeError:
        return UserCodeError(
            f"{self.name}: {self.function_name} raised\n{user_traceback(error)}", stage=self.name
        )

    def _refuse_random_state(self, nodes: set[str]) -> None:
        if nodes:
            raise ConfigError(
                f"{self.name}: {self.function_name} draws random numbers that do not come from the "
                f"sample's key: {', '.join(sorted(nodes))}; such a batch is not reproducible. "
                "Write the function as f(sample, key) and use tf.random.stateless_* or "
                "tf.image.stateless_* with seed=key",
                stage=self.name,
            )

    def _to_sample(self, returned: Any) -> Sample:
        if not isinstance(returned, dict):
            raise self._wrong_result(_describe_value(returned))
        sample: Sample = {}
        for field, value in returned.items():
            if not isinstance(field, str) or not field:
                raise self._wrong_result(f"a dict with the key {field!r}")
            try:
                if value is None or isinstance(value, tf.__internal__.CompositeTensor):
                    raise TypeError
                sample[field] = tf.convert_to_tensor(value)
            except (TypeError, ValueError):
                raise self._wrong_result(
                    f"a dict whose {field!r} is {_describe_value(value)}"
                ) from None
        return sample

    def _wrong_result(self, result: str) -> ConfigError:
        return ConfigError(
            f"{self.name}: {self.function_name} returned {result}; it must return a dict of field "
            "name (text) → tensor",
            stage=self.name,
        )


def _random_nodes() -> set[str]:
    """Returns the nodes with random state in the graph that is being traced."""
    return set() if tf.executing_eagerly() else random_nodes(tf.compat.v1.get_default_graph())


def _describe_value(value: Any) -> str:
    """Describes a value for an error: `a tuple of 2: float32[3], int64[]`."""
    if isinstance(value, tf.Tensor):
        return describe_tensor(value)
    if isinstance(value, tuple | list):
        items = ", ".join(_describe_value(item) for item in value)
        return f"a {type(value).__name__} of {len(value)}" + (f": {items}" if items else "")
    return "None" if value is None else f"{type(value).__name__}"


def _qualified_name(function: Any) -> str:
    definition = _definition(function)
    return f"{definition.__module__}:{definition.__qualname__}"


def _definition(function: Any) -> Any:
    """Unwraps a callable to its `def` or `class`: through partial, tf.function and wrappers."""
    while True:
        if hasattr(function, "func"):  # functools.partial
            function = function.func
        elif hasattr(function, "python_function"):  # tf.function
            function = function.python_function
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function if hasattr(function, "__qualname__") else type(function)


def _function_identity(function: Any) -> dict[str, Any]:
    definition = _definition(function)
    identity: dict[str, Any] = {
        "function": _qualified_name(function),
        "code": code_digest(definition),
        "bound": _bound_values(function),
    }
    code = getattr(definition, "__code__", None)
    if code is not None and "<lambda>" in definition.__qualname__:
        identity["line"] = code.co_firstlineno  # lambdas of one file share their name
    return identity


def _bound_values(function: Any) -> list[str]:
    """Lists the plain values in a partial, a closure or an object's attributes."""
    values: list[Any] = []
    if hasattr(function, "func"):
        values += [*enumerate(function.args), *sorted(function.keywords.items())]
    definition = _definition(function)
    if inspect.isfunction(definition):
        values += sorted(inspect.getclosurevars(definition).nonlocals.items())
    elif inspect.isclass(definition):
        values += sorted(getattr(function, "__dict__", {}).items())
    plain = (str, bytes, int, float, bool, type(None))
    return [f"{name}={value!r}" for name, value in values if isinstance(value, plain)]
