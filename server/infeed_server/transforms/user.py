"""The user's own function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf
from pydantic import field_validator
from typing_extensions import override

from infeed.errors import ConfigError, UserCodeError
from infeed_server.config.importer import code_digest, load
from infeed_server.config.traceback import user_traceback
from infeed_server.transforms.base import Key, Sample, Transform
from infeed_server.transforms.checks import described
from infeed_server.transforms.lint import random_nodes

# Taken while nothing is being traced, this says "convert by default", which is what Dataset.map
# asks for as well: an `if` on a tensor works in the user's function as it does there.
_AUTOGRAPH = tf.__internal__.autograph.control_status_ctx()


class Map(Transform):
    """A function from a sample, a dict of field name → tensor, to another such dict.

    `function` is `module:attr`, or the function itself from Python. It is called with
    `(sample, key)` when `keyed`, else with `(sample)`. Left out, `keyed` follows the signature:
    true for a second positional parameter that has no default or is called `key`. The key is
    int64[2], different for every (seed, epoch, sample, place in the list), and fits the `seed` of
    every `tf.random.stateless_*` and `tf.image.stateless_*` function.
    """

    name: ClassVar[str] = "map"
    shorthand: ClassVar[str | None] = "function"

    function: str | Callable[..., Any]
    keyed: bool | None = None

    @field_validator("function")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            if not module or not attribute:
                raise ValueError("should be of the form module:attr")
        return value

    @property
    def random(self) -> bool:
        return self._takes_key(self._loaded())

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        function = self._loaded()
        # Run as it is written where no graph is made: one sample alone, to find what it raises.
        converted = function
        if not tf.executing_eagerly():
            converted = tf.__internal__.autograph.tf_convert(function, _AUTOGRAPH)
        arguments = (dict(sample), key) if self._takes_key(function) else (dict(sample),)
        before = _drawing()
        try:
            returned = converted(*arguments)
        except Exception as error:  # the user's code may raise anything
            raise self._raised(error) from error
        self._refuse_state(_drawing() - before)
        return self._checked(returned)

    @override
    def identity(self) -> dict[str, Any]:
        """The function's name, its code (the file that defines it) and the plain values it holds.

        Values are those of a partial's arguments, a closure or a callable object's attributes, as
        far as they are numbers and text: nothing else has a form that is the same in every
        process. Globals are not followed.
        """
        function = self._loaded()
        return {self.name: {**_function_identity(function), "keyed": self._takes_key(function)}}

    def _loaded(self) -> Callable[..., Any]:
        if not isinstance(self.function, str):
            return self.function
        try:
            found = load(self.function)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error.message}", stage=self.name) from None
        except Exception as error:  # the user's module may raise anything
            raise self._raised(error) from error
        if not callable(found):
            raise ConfigError(
                f"{self.name}: {self.function} is no function but {type(found).__name__}",
                stage=self.name,
            )
        return found  # type: ignore[no-any-return]

    def _takes_key(self, function: Callable[..., Any]) -> bool:
        if self.keyed is not None:
            return self.keyed
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # a function written in C may have none to show
            return False
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        positional = [parameter for parameter in parameters if parameter.kind in kinds]
        if len(positional) < 2:
            return False
        second = positional[1]
        return second.default is inspect.Parameter.empty or second.name == "key"

    @property
    def called(self) -> str:
        """What messages call the function: `module:attr`."""
        return self.function if isinstance(self.function, str) else _qualified(self.function)

    def _raised(self, error: Exception) -> UserCodeError:
        return UserCodeError(
            f"{self.name}: {self.called} raised\n{user_traceback(error)}", stage=self.name
        )

    def _refuse_state(self, drawing: set[str]) -> None:
        if drawing:
            raise ConfigError(
                f"{self.name}: {self.called} draws random numbers that do not come from the "
                f"sample's key: {', '.join(sorted(drawing))}; such a batch cannot be made again. "
                "Write the function as f(sample, key) and use tf.random.stateless_* or "
                "tf.image.stateless_* with seed=key",
                stage=self.name,
            )

    def _checked(self, returned: Any) -> Sample:
        if not isinstance(returned, dict):
            raise self._unfit(_came(returned))
        sample: Sample = {}
        for field, value in returned.items():
            if not isinstance(field, str) or not field:
                raise self._unfit(f"a dict with the key {field!r}")
            try:
                if value is None or isinstance(value, tf.__internal__.CompositeTensor):
                    raise TypeError
                sample[field] = tf.convert_to_tensor(value)
            except (TypeError, ValueError):
                raise self._unfit(f"a dict whose {field!r} is {_came(value)}") from None
        return sample

    def _unfit(self, came: str) -> ConfigError:
        return ConfigError(
            f"{self.name}: {self.called} returned {came}; it must return a dict of field name "
            "(text) → tensor",
            stage=self.name,
        )


def _drawing() -> set[str]:
    return set() if tf.executing_eagerly() else random_nodes(tf.compat.v1.get_default_graph())


def _came(value: Any) -> str:
    """A value as an error tells it: `a tuple of 2: float32[3], int64[]`."""
    if isinstance(value, tf.Tensor):
        return described(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(_came(item) for item in value)
        return f"a {type(value).__name__} of {len(value)}" + (f": {inner}" if inner else "")
    return "None" if value is None else f"{type(value).__name__}"


def _qualified(function: Any) -> str:
    named = _definition(function)
    return f"{named.__module__}:{named.__qualname__}"


def _definition(function: Any) -> Any:
    """The `def` or `class` behind a callable: through partial, tf.function and wrappers."""
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
        "function": _qualified(function),
        "code": code_digest(definition),
        "bound": _bound(function),
    }
    code = getattr(definition, "__code__", None)
    if code is not None and "<lambda>" in definition.__qualname__:
        identity["line"] = code.co_firstlineno  # lambdas of one file share their name
    return identity


def _bound(function: Any) -> list[str]:
    """The plain values that a partial, a closure or an object's attributes hold."""
    held: list[Any] = []
    if hasattr(function, "func"):
        held += [*enumerate(function.args), *sorted(function.keywords.items())]
    definition = _definition(function)
    if inspect.isfunction(definition):
        held += sorted(inspect.getclosurevars(definition).nonlocals.items())
    elif inspect.isclass(definition):
        held += sorted(getattr(function, "__dict__", {}).items())
    plain = (str, bytes, int, float, bool, type(None))
    return [f"{name}={value!r}" for name, value in held if isinstance(value, plain)]
