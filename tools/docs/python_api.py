"""Tables of the Python interface: arguments of functions, members of classes, and errors."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import griffe
from tools.docs.docstrings import (
    attribute_docstring,
    first_paragraph,
    listed_names,
    required_paragraph,
)
from tools.docs.markdown import DocsError, Table, cell, code

import infeed
from infeed.shared.errors import BY_REASON, InfeedError
from infeed.tensorflow import distribute

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "connect": infeed.connect,
    "distribute": distribute,
}

_SECTIONS = {
    "infeed": "trainers.md",
    "infeed.Batch": "trainers.md#feed",
    "infeed.Feed": "trainers.md#feed",
    "infeed.Shard": "trainers.md#ranks",
    "infeed.Slot": "trainers.md#steps-again",
    "infeed.Stats": "feeding.md#statistics",
    "infeed.TLS": "security.md#tls",
    "infeed.at": "trainers.md#steps-again",
    "infeed.connect": "trainers.md#connect",
    "infeed.spec": "trainers.md#sizes-without-a-feed",
    "infeed.jax": "jax.md",
    "infeed.torch": "pytorch.md",
    "infeed.torch.FeedCallback": "pytorch.md#lightning",
    "infeed.keras": "keras.md#generators",
    "infeed.keras.FeedCheckpoint": "keras.md#checkpoints",
    "infeed.tensorflow": "tensorflow.md",
    "infeed.tensorflow.FeedCheckpoint": "keras.md#checkpoints",
    "infeed.tensorflow.distribute": "feeding.md#distribute",
    "infeed.grain": "grain.md",
    "infeed.audit": "runs.md#audit-in-python",
    "infeed.loadtest": "runs.md#as-a-gate-in-ci",
    "infeed.testing": "trainers.md#testing-without-a-server",
    "infeed_server": "pipelines.md",
    "infeed_server.AmendOptions": "runs.md#amend",
    "infeed_server.DiffOptions": "runs.md#diff",
    "infeed_server.amend": "runs.md#amend",
    "infeed_server.diff": "runs.md#diff",
}
"""Module, or name of one → the section that explains it."""

_FOR_ADAPTERS = "For adapters"
"""End of the text of a member that trainers do not need."""

_ADAPTERS = [f"infeed.{name}" for name in ("jax", "torch", "keras", "tensorflow", "grain")]
"""Modules that are read but not imported, since a checkout's set-up lacks their frameworks."""

_MODULES = [
    "infeed",
    *_ADAPTERS,
    "infeed.audit",
    "infeed.loadtest",
    "infeed.testing",
    "infeed_server",
]


def tables() -> dict[str, Table]:
    """Returns the tables of all functions and classes by name."""
    return {
        **{f"arguments.{name}": _arguments(item) for name, item in _FUNCTIONS.items()},
        "fields.Stats": _fields(infeed.Stats),
        "api": _api(),
        "members.Feed": _feed_members(),
        "members.Batch": _batch_members(),
        "errors": _errors(),
    }


def _api() -> Table:
    """Returns the public names of all modules, without errors."""
    rows = []
    adapters = _read_adapters()
    for module in _MODULES:
        for name, item in adapters[module] if module in adapters else _public(module):
            path = f"{module}.{name}"
            sentence = re.split(r"(?<=\.)\s", first_paragraph(item))[0]
            section = _SECTIONS.get(path, _SECTIONS[module])
            rows.append((f"[{code(path)}]({section})", cell(sentence)))
    return Table(("name", "meaning"), rows)


def _public(module: str) -> Iterator[tuple[str, object]]:
    """Yields by name what a module offers: the names that it lists, or those that it defines."""
    found = importlib.import_module(module)
    own = [name for name, item in vars(found).items() if _defines(found, item)]
    for name in dir(found) if "__dir__" in vars(found) else sorted(own):
        is_adapter = f"{module}.{name}" in _ADAPTERS
        item = None if is_adapter else getattr(found, name)
        if name[0] != "_" and callable(item) and not _is_error(item):
            yield name, item


def _read_adapters() -> dict[str, list[tuple[str, object]]]:
    """Returns the names that each adapter exports, each with something of the same docstring."""
    loader = griffe.GriffeLoader(search_paths=["client", "plugins/frameworks", "plugins/service"])
    modules = {name: loader.load(name) for name in _ADAPTERS}
    loader.resolve_aliases(external=True)
    return {
        name: [
            (exported, SimpleNamespace(__doc__=module[exported].final_target.docstring.value))
            for exported in sorted(module.exports or ())
        ]
        for name, module in modules.items()
    }


def _defines(module: ModuleType, item: object) -> bool:
    return getattr(item, "__module__", None) == module.__name__


def _is_error(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, InfeedError)


def _arguments(function: Callable[..., Any]) -> Table:
    texts = listed_names(function)
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in texts:
            raise DocsError(
                f"{function.__module__}.{function.__qualname__}: its docstring does not list the "
                f"argument {name!r}"
            )
        rows.append((code(name), _default(parameter), cell(texts[name])))
    return Table(("argument", "default", "meaning"), rows)


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    return code(_format(parameter.default))


def _format(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} << 20"
    return repr(value)


def _fields(cls: type) -> Table:
    rows = [
        (code(field.name), cell(attribute_docstring(cls, field.name)))
        for field in dataclasses.fields(cls)
    ]
    return Table(("field", "meaning"), rows)


def _feed_members() -> Table:
    public = {name: value for name, value in vars(infeed.Feed).items() if name[0] != "_"}
    methods = [
        (code(f"{name}({_signature(method)})"), cell(first_paragraph(method)))
        for name, method in public.items()
        if inspect.isfunction(method)
    ]
    properties = [
        (code(name), cell(first_paragraph(value)))
        for name, value in public.items()
        if isinstance(value, property)
    ]
    attributes = [
        (code(name), cell(attribute_docstring(infeed.Feed, name)))
        for name in infeed.Feed.__annotations__
    ]
    rows = [row for row in methods + attributes + properties if not row[1].endswith(_FOR_ADAPTERS)]
    return Table(("member", "meaning"), rows)


def _signature(method: Callable[..., Any]) -> str:
    """Returns the parameters without their types and without `self`."""
    _, *parameters = inspect.signature(method).parameters.values()
    return ", ".join(
        str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters
    )


def _batch_members() -> Table:
    listed = listed_names(infeed.Batch)
    slots = first_paragraph(infeed.Batch.slots)
    rows = [(code(name), cell(text)) for name, text in {**listed, "slots": slots}.items()]
    return Table(("of a batch", "meaning"), rows)


def _errors() -> Table:
    rows = [
        (
            *(_class(item), code(item.reason), code(item.code)),
            *(cell(first_paragraph(item)), cell(required_paragraph(item, "Remedy"))),
        )
        for item in [InfeedError, *BY_REASON.values()]
    ]
    return Table(("class", "reason", "gRPC code", "raised when", "remedy"), rows)


def _class(error: type[InfeedError]) -> str:
    """Returns the name of a class, with the built-in exceptions that it is too."""
    bases = [base for base in error.__bases__ if not issubclass(base, InfeedError)]
    built_in = [code(base.__name__) for base in bases if base is not Exception]
    return " and ".join([code(error.__name__), *built_in])
