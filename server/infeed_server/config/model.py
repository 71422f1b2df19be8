"""The base of every definition, and how its errors are told."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Definition(BaseModel):
    """A strict, immutable model: an unknown key is an error, a number is never taken from text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


Path = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions from the top."""


def dotted(path: Path) -> str:
    """`('transforms', 1, 'resize')` as `transforms[1].resize`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def explain(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, str]]:
    """Each problem of a validation, as where it is and what is allowed there."""
    problems = []
    for item in error.errors(include_url=False):
        path = tuple(step for step in item["loc"] if not _is_union_tag(step))
        problems.append((path, _sentence(item, path, model)))
    return problems


def did_you_mean(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _is_union_tag(step: str | int) -> bool:
    # pydantic puts the name of the union's member, such as `function-after[...]` or `list[int]`,
    # into the path; the document has no such step.
    return isinstance(step, str) and any(mark in step for mark in "[(-")


def _sentence(item: Any, path: Path, model: type[BaseModel]) -> str:
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        known = sorted(_fields_at(model, path[:-1]))
        word = str(path[-1])
        return f"unknown key {word!r}{did_you_mean(word, known)}; allowed: {', '.join(known)}"
    if kind == "missing":
        return "missing; it is required"
    message = item["msg"].removeprefix("Value error, ")
    shown = repr(given)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return f"{message[0].lower()}{message[1:]}, not {shown}" if given is not None else message


def _fields_at(model: type[BaseModel], path: Path) -> set[str]:
    for step in path:
        inner = model.model_fields.get(str(step))
        annotation = inner.annotation if inner else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return set(model.model_fields)
