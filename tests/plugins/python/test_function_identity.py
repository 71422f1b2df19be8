"""Tests of `function_identity.py`: it changes with a function's code and values."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed_python.function_identity import function_identity, opaque_parts


def scaled(factor: float) -> Callable[[Any], Any]:
    def scale(x: Any) -> Any:
        return x * factor

    return scale


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def apply(self, x: Any) -> Any:
        return self(x)


def wrapped(factor: float, *, wraps: bool) -> Callable[[Any], Any]:
    """Returns a function in a decorator that holds a number."""

    def double(x: Any) -> Any:
        return 2 * x

    def scale(x: Any) -> Any:
        return double(x) * factor

    return functools.wraps(double)(scale) if wraps else scale


def composed(factor: float) -> Callable[[Any], Any]:
    inner = scaled(factor)
    return lambda x: 1 + inner(x)


def recursive(factor: float) -> Callable[[Any], Any]:
    def power(x: Any) -> Any:
        return power(x - 1) * factor if x else 1

    return power


@pytest.mark.parametrize(
    "make",
    [
        scaled,
        Scale,
        lambda factor: Scale(factor).apply,
        lambda factor: functools.partial(scaled, factor=factor),
        lambda factor: functools.partial(map, scaled(factor)),
        functools.partial(wrapped, wraps=True),
        functools.partial(wrapped, wraps=False),
        composed,
        recursive,
    ],
)
def test_it_changes_with_the_values_that_are_held(make: Callable[[float], Any]) -> None:
    assert function_identity(make(2.0)) == function_identity(make(2.0))
    assert function_identity(make(2.0)) != function_identity(make(3.0))
    assert json.dumps(function_identity(make(2.0)))


DECORATORS = """
def plain(function):
    def call(x):
        return function(x)
    return call
"""
NAMED = """
import functools, operator
from decorators_of_test import plain

@plain
def decorated(x):
    return 2 * x

partial = functools.partial(operator.mul, 2)
"""


def test_it_changes_with_the_module_that_it_is_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    files = {"decorators_of_test": DECORATORS, "named_of_test": NAMED}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    module = importlib.import_module("named_of_test")
    for attribute in ("decorated", "partial"):
        function, path = getattr(module, attribute), f"named_of_test:{attribute}"
        before = function_identity(function, path)
        for name, text in files.items():
            file = tmp_path / f"{name}.py"
            file.write_text(text + "# changed\n")
            assert function_identity(function, path) != before
            file.write_text(text)
        assert function_identity(function, path) == before


def _recursive(held: Any) -> Callable[[int], Any]:
    def even(n: int) -> Any:
        return held if n == 0 else odd(n - 1)

    def odd(n: int) -> Any:
        return held if n == 0 else even(n - 1)

    return even


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_recursive, ""),
        (_recursive(3), ""),
        (functools.partial(_recursive, "x"), ""),
        (_recursive([3]), "it holds 'held', a list, which is not in its code"),
        (functools.partial(_recursive, held={}), "it holds 'held', a dict, which is not in its"),
        (functools.partial(_recursive(object())), "it holds 'held', a object, which is not in"),
        (len, "it has no source code in Python"),
    ],
)
def test_parts_that_are_not_covered_are_named(function: Any, message: str) -> None:
    found = opaque_parts(function)
    assert found.startswith(message)
    assert bool(found) == bool(message)
