"""The base model of every definition, and the wording of its validation errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import Self

from infeed.shared.errors import KeyPath

Finding = tuple[KeyPath, str]
"""A mistake in a definition: its place and its description."""


class Definition(BaseModel):
    """A strict, immutable model: an unknown key is an error, and text is never read as a number.

    `Field(examples=["[0, 0.8]"])` has what an error tells to write for a value of another type.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_keys(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Adds what can be written to an error about an unknown key, or a value of another type."""
        try:
            return validate(value)
        except ValidationError as error:
            fields = (field.alias or name for name, field in cls.model_fields.items())
            known = sorted([*fields, *cls.other_keys()])
            details = [cls._detail(item, known, value) for item in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, details) from None

    @classmethod
    def other_keys(cls) -> list[str]:
        """Returns the keys that a file may have besides the fields."""
        return []

    @classmethod
    def hint(cls, key: str, known: list[str], value: Any) -> str:  # noqa: ARG003 - of others
        """Returns what to write instead of an unknown key of `value`; empty if that is unclear."""
        return did_you_mean(key, known)

    @classmethod
    def _detail(cls, item: Any, known: list[str], value: Any) -> InitErrorDetails:
        kind, path, message = item["type"], item["loc"], item["msg"]
        if kind == "extra_forbidden" and len(path) == 1:
            hint = cls.hint(str(path[0]), known, value)
            message = f"unknown key {path[0]!r}{hint}; allowed: {', '.join(known)}"
        elif kind.endswith("_type") and (example := cls._example(path, item["input"], value)):
            message = f"{message.partition(' or instance of ')[0]} such as {example}"
        error = PydanticCustomError(kind, message)
        return InitErrorDetails(type=error, loc=path, input=item["input"])

    @classmethod
    def _example(cls, path: KeyPath, wrong: Any, value: Any) -> str:
        """Returns an example of this model, or of the field that is wrong; empty without one."""
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        examples = {key: str((field.examples or ["..."])[0]) for key, field in fields.items()}
        if path:
            name = str(path[0])
            has_example = name in fields and fields[name].examples
            is_whole = isinstance(value, Mapping) and value.get(name) is wrong
            return examples[name] if has_example and is_whole else ""
        required = [key for key, field in fields.items() if field.is_required()]
        options = ", ".join(f"{key}: {examples[key]}" for key in required or fields)
        return options and f"{{{options}}}"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yields the options as written, without defaults."""
        for name, value in super().__repr_args__():
            is_set = name in self.model_fields_set
            if is_set and value is not type(self).model_fields[str(name)].default:
                yield name, value


def as_tuple(value: Any) -> Any:
    """Returns a list as a tuple, all else unchanged: models are strict, and YAML has no tuples."""
    return tuple(value) if isinstance(value, list) else value


def explain(error: ValidationError, value: Any) -> list[tuple[KeyPath, str]]:
    """Returns the place and description of each problem with `value`, each once."""
    return list(
        dict.fromkeys(
            (_path(item, value), _description(item)) for item in error.errors(include_url=False)
        )
    )


def did_you_mean(word: str, known: list[str]) -> str:
    """Returns a hint naming the most similar known word; empty if none is similar."""
    matches = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def _path(item: Any, value: Any) -> KeyPath:
    # pydantic inserts the names of union members and validators, such as `list[int]` or
    # `function-after[...]`; the value has no such steps.
    path: list[str | int] = []
    above: Any = None
    for step in item["loc"]:
        is_index = isinstance(value, list | tuple) and isinstance(step, int) and step < len(value)
        if is_index or (isinstance(value, Mapping) and step in value):
            path.append(step)
            above, value = value, value[step]
        elif isinstance(above, Mapping) and step in above:
            # The key of such a source stands beside `source`, though it contains it.
            path[-1], value = step, above[step]
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _description(item: Any) -> str:
    kind, value = item["type"], item["input"]
    if kind == "missing":
        return "missing; it is required"
    message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = message.partition(" or instance of ")[0]  # which names a class of infeed
    message = message[0].lower() + message[1:]
    if kind.startswith("byte_size"):
        message = "should be bytes, or a size such as 8GiB"
    message = message.replace("dictionary", "mapping").replace("tuple", "list")
    has_value = kind in ("too_short", "too_long", "extra_forbidden") or (
        kind == "value_error" and not message.startswith("should")
    )
    if has_value or value is None:
        return str(message)
    text = repr(value)
    return f"{message}, not {text if len(text) <= 80 else text[:77] + '...'}"
