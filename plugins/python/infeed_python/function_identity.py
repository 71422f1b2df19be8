"""The identity of a user's function: its name, its code and the plain values in it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from infeed_server.config.code_digest import code_digest

_PLAIN = (str, bytes, int, float, bool, type(None))
"""Types whose values have the same `repr` in every process."""


def qualified_name(function: Any) -> str:
    """Returns `module:name` of a function's definition."""
    *_, definition = _layers(function)
    return f"{definition.__module__}:{definition.__qualname__}"


def function_identity(function: Any, name: str = "") -> dict[str, Any]:
    """Returns JSON values that change when the function's behaviour may have changed. They cover
    its code, and the numbers, text and functions in a partial's arguments, a closure's variables
    or an object's attributes: other values have no form that is the same in every process. If the
    function was loaded by `name`, a `module:attr`, they also cover the module's code, and so the
    globals that it sets."""
    identity = _identity(function, frozenset())
    module = sys.modules.get(name.partition(":")[0])
    if module is not None:
        identity["module"] = code_digest(module)
    return identity


def opaque_parts(function: Any) -> str:
    """Returns a part of the function that its identity does not cover; empty if there is none."""
    return _opaque_parts(function, set())


def _opaque_parts(function: Any, seen: set[int]) -> str:
    seen.add(id(function))  # functions may hold each other
    for layer in _layers(function):
        for name, value in _held_values(layer):
            if isinstance(value, functools.partial) or inspect.isfunction(value):
                if id(value) not in seen and (part := _opaque_parts(value, seen)):
                    return part
            elif not isinstance(value, _PLAIN) and not _is_code(value):
                return f"it holds {name!r}, a {type(value).__name__}, which is not in its code"
    *_, definition = _layers(function)
    try:
        has_source = inspect.getsourcefile(definition) is not None
    except TypeError:
        has_source = False
    return "" if has_source else "it has no source code in Python"


def _is_code(value: Any) -> bool:
    return inspect.isclass(value) or inspect.ismodule(value) or inspect.isbuiltin(value)


def _identity(function: Any, holders: frozenset[int]) -> dict[str, Any]:
    layers = list(_layers(function))
    definition = layers[-1]
    holders |= {id(layer) for layer in layers}
    held = [value for layer in layers for value in _held_values(layer)]
    identity: dict[str, Any] = {
        "function": f"{definition.__module__}:{definition.__qualname__}",
        "code": [code_digest(layer) for layer in layers],
        "bound": [f"{name}={value!r}" for name, value in held if isinstance(value, _PLAIN)],
        "calls": [
            _identity(value, holders)
            for _, value in held
            if isinstance(value, functools.partial) or inspect.isfunction(value)
            if id(value) not in holders
        ],
    }
    code = getattr(definition, "__code__", None)
    if code is not None and "<lambda>" in definition.__qualname__:
        identity["line"] = code.co_firstlineno  # lambdas of one file share their name
    return identity


def _layers(function: Any) -> Iterator[Any]:
    """Yields a callable, and what it wraps, down to a `def` or `class`."""
    while True:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "python_function"):  # tf.function
            function = function.python_function
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif not hasattr(function, "__qualname__"):
            function = type(function)
        else:
            return


def _held_values(layer: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the names and values in a partial, a closure or an object's attributes."""
    if isinstance(layer, functools.partial):
        yield from enumerate(layer.args)
        yield from sorted(layer.keywords.items())
    elif inspect.ismethod(layer):
        yield from sorted(getattr(layer.__self__, "__dict__", {}).items())
    elif inspect.isfunction(layer):
        yield from sorted(inspect.getclosurevars(layer).nonlocals.items())
    elif not inspect.isclass(layer):
        yield from sorted(getattr(layer, "__dict__", {}).items())
