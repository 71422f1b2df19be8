"""Types and defaults of options, as YAML has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import groupby
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, ByteSize, PositiveInt
from pydantic.fields import FieldInfo
from tools.docs.markdown import DocsError, code

from infeed_server.pipeline.definition import RemoveOption, StepRanges
from infeed_server.sources.registry import AnySource
from infeed_server.storage.files import PathString
from infeed_server.transforms import TransformList, option_types

_KNOWN = (
    (PathString, "path"),
    (PositiveInt, "integer from 1"),
    (ByteSize, "bytes, or a size such as `8GiB`"),
    (AnySource, "mapping"),
    (TransformList, "list"),
    (RemoveOption, "path, list or mapping"),
    (StepRanges, "list of `[first, end]`"),
    (option_types.Size, "`[height, width]`"),
    (option_types.Range, "`[lower, upper]`"),
    (option_types.Shape, "list of sizes"),
    (option_types.Numbers, "number or list of numbers"),
)
"""Types with a shorter or clearer name than one derived from their parts."""

_SIMPLE = {
    Fraction: "number or text",
    bool: "`true`, `false`",
    int: "integer",
    float: "number",
    str: "string",
}


def describe_type(hint: Any) -> str:
    """Returns the values that an option of this type can have."""
    for known, name in _KNOWN:
        if hint == known:
            return name
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _describe_bounds(arguments[0], arguments[1:]) or describe_type(arguments[0])
    if origin is Literal:
        return _describe_values(list(map(str, arguments)))
    if origin in (Union, UnionType):
        return _describe_union([argument for argument in arguments if argument is not NoneType])
    if origin in (list, tuple):
        item = describe_type(arguments[0])
        is_range = item[:1].isdigit()
        return "list of " + (
            f"numbers from {item}" if is_range else re.sub(r"^\w+", r"\g<0>s", item)
        )
    if origin is dict or (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return "mapping"
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    raise DocsError(
        f"the type {hint} has no name in a table; add one in tools/docs/option_types.py"
    )


def _describe_values(values: list[str]) -> str:
    """Returns the values; of three or more that differ in their number, only the outer two."""
    parts = []
    for _, group in groupby(values, key=lambda value: value.rstrip("0123456789") or value):
        alike = list(map(code, group))
        parts += [f"{alike[0]} to {alike[-1]}"] if len(alike) > 2 else alike
    return ", ".join(parts)


def _describe_union(members: list[Any]) -> str:
    if any(get_origin(member) is Callable for member in members):
        return "`module:attr`"  # in Python, also the function itself
    return " or ".join(dict.fromkeys(map(describe_type, members)))


def _describe_bounds(number: Any, metadata: tuple[Any, ...]) -> str | None:
    """Returns the range of a number, None for another type or without limits."""
    if number not in (int, float):
        return None
    constraints = [
        constraint
        for item in metadata
        for constraint in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]
    low = high = None
    for constraint in constraints:
        match constraint:
            case annotated_types.Ge(ge=low):
                pass
            case annotated_types.Gt(gt=above) if number is int:
                low = above + 1
            case annotated_types.Le(le=high):
                pass
    if low is None:
        return None
    return f"{_SIMPLE[number]} from {low}" if high is None else f"{low} to {_power_of_two(high)}"


def _power_of_two(number: float) -> str:
    """Returns 2^63 - 1 for that number, and smaller or other numbers unchanged."""
    bits = int(number).bit_length()
    return f"2^{bits} - 1" if bits > 32 and number == (1 << bits) - 1 else str(number)


def describe_default(field: FieldInfo) -> str:
    """Returns the default as YAML has it, `required`, or `none`."""
    if field.is_required():
        return "required"
    default = field.default
    if default is None or default == ():
        return "none"
    if isinstance(default, BaseModel):
        default = default.model_dump(exclude_unset=True)
    elif isinstance(default, ByteSize):
        default = default.human_readable().replace(".0", "")
    elif isinstance(default, tuple):
        default = list(default)
    text = yaml.safe_dump(default, default_flow_style=True)
    return code(text.removesuffix("...\n").strip())
