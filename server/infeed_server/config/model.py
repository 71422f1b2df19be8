"""The base of every definition, and how its errors are told."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError


class Definition(BaseModel):
    """A strict, immutable model: an unknown key is an error, a number is never taken from text."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True
    )


@dataclass(frozen=True, eq=False)  # hashable, as metadata of a union must be
class Variants:
    """Metadata of an `Annotated` type: a mapping of one key, and the model of each key's value."""

    models: Mapping[str, type[BaseModel]]


Path = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions from the top."""


def dotted(path: Path) -> str:
    """`('transforms', 1, 'resize')` as `transforms[1].resize`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def explain(
    error: ValidationError, model: type[BaseModel], value: Any = None
) -> list[tuple[Path, str]]:
    """Each problem of a validation, as where it is and what is allowed there.

    `value` is what was validated. With it, the places are exactly the document's; without it,
    steps that pydantic adds for the members of a union are told by their form.
    """
    problems = []
    for item in error.errors(include_url=False):
        path = _path(item, value)
        problem = (path, _sentence(item, path, model))
        if problem not in problems:
            problems.append(problem)
    return problems


def did_you_mean(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _path(item: Any, value: Any) -> Path:
    # pydantic puts the name of a union's member, such as `list[int]` or `function-after[...]`,
    # into the place of an error; the document has no such step.
    steps: Path = item["loc"]
    if value is None:
        return tuple(step for step in steps if isinstance(step, int) or not set("[(") & set(step))
    path: list[str | int] = []
    for place, step in enumerate(steps):
        if _has(value, step):
            path.append(step)
            value = value[step]
        elif item["type"] == "missing" and place == len(steps) - 1:
            path.append(step)
    return tuple(path)


def _has(value: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(value, list | tuple) and step < len(value)
    return isinstance(value, Mapping) and step in value


def _sentence(item: Any, path: Path, model: type[BaseModel]) -> str:
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        known = sorted(_keys_at(model, path[:-1]))
        word = str(path[-1])
        return f"unknown key {word!r}{did_you_mean(word, known)}; allowed: {', '.join(known)}"
    if kind == "missing":
        return "missing; it is required"
    message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = _in_yaml_words(message[0].lower() + message[1:])
    # A sentence of ours says itself what was given, unless it only says what should be.
    tells_itself = kind in ("too_short", "too_long") or (
        kind == "value_error" and not message.startswith("should")
    )
    if tells_itself or given is None:
        return message
    shown = repr(given)
    return f"{message}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"


def _in_yaml_words(message: str) -> str:
    if " or instance of " in message:  # "a valid dictionary or instance of Resize"
        message = message.partition(" or instance of ")[0]
    return (
        message.replace("dictionary", "mapping")
        .replace("tuple", "list")
        .replace(" after validation", "")
    )


def _keys_at(model: type[BaseModel], path: Path) -> set[str]:
    """The keys that are allowed at a place; of every variant, where the place does not decide."""
    types: list[Any] = [model]
    for step in path:
        types = [inner for outer in types for inner in _step_into(outer, step)] or types
    return {key for found in types for candidate in _models(found) for key in _keys(candidate)}


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _step_into(annotation: Any, step: str | int) -> Iterator[Any]:
    """The types that the value at one step below a type can have."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if step == (field.alias or name):
                variants = [extra for extra in field.metadata if isinstance(extra, Variants)]
                yield Annotated[field.annotation, variants[0]] if variants else field.annotation
    elif origin is Annotated:
        found = [extra for extra in arguments[1:] if isinstance(extra, Variants)]
        if found:
            yield from (extra.models[str(step)] for extra in found if step in extra.models)
        else:
            yield from _step_into(arguments[0], step)
    elif origin in (list, tuple):
        yield from (argument for argument in arguments if argument is not Ellipsis)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield arguments[1]
    else:  # a union
        for argument in arguments:
            yield from _step_into(argument, step)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a type's value may be itself, not in a list or under a key."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) not in (list, tuple, dict):
        for argument in get_args(annotation):
            yield from _models(argument)
