"""Command options from models: each field of a dataclass or of a pydantic model is one option.

    @with_models
    def audit(target: Target, options: AuditOptions, connection: Connection) -> None: ...

The help lists the fields of both models, and the command gets an instance of each.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ParameterInfo


def with_models(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameters of a command that are models by the models' fields."""
    hints = get_type_hints(command, include_extras=True)
    models = {name: model_options(hint) for name, hint in hints.items() if _is_model(hint)}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        shown += models.get(name, [own])

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: hints[name](**{field.name: values.pop(field.name) for field in fields})
            for name, fields in models.items()
        }
        command(**values, **made)

    # Typer reads the parameters from both.
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """Returns a field of a dataclass that is an option; `more` has arguments of `typer.Option`.

    Without `names`, the option has the name of the field.
    """
    extra = {**more, **({"names": names} if names else {})}
    return dataclasses.field(default=default, metadata={"help": help_text, "extra": extra})


def model_options(model: Any) -> list[inspect.Parameter]:
    """Returns a parameter for each field of a model, as Typer reads it.

    The field of a dataclass is an `option`. A field of a pydantic model has a description, which is
    the help, and in `json_schema_extra` the other arguments of `typer.Option`, such as `metavar`
    and `rich_help_panel`; `names` are the option's names. In place of both, the annotation of a
    field may have a `typer.Option` or `typer.Argument`.
    """
    hints = get_type_hints(model, include_extras=True)
    if dataclasses.is_dataclass(model):
        fields = [
            (item.name, item.default, item.metadata.get("help"), item.metadata.get("extra"))
            for item in dataclasses.fields(model)
        ]
    else:
        fields = [
            (name, _default(field), field.description, field.json_schema_extra)
            for name, field in model.model_fields.items()
        ]
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(
            name,
            kind,
            annotation=_described(name, hints[name], help_text, extra or {}),
            default=empty if _is_missing(default) else default,
        )
        for name, default, help_text, extra in fields
    ]


def _described(name: str, hint: Any, help_text: str | None, extra: Mapping[str, Any]) -> Any:
    """Returns the annotation with an option, unless it has one."""
    if any(isinstance(part, ParameterInfo) for part in get_args(hint)):
        return hint
    # With its name, a bool has no second option that begins with --no.
    names = extra.get("names", [f"--{name.replace('_', '-')}"])
    more = {key: value for key, value in extra.items() if key != "names"}
    return Annotated[hint, typer.Option(*names, help=help_text, **more)]


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _is_model(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hasattr(hint, "model_fields")


def _is_missing(default: Any) -> bool:
    return default is dataclasses.MISSING or type(default).__name__ == "PydanticUndefinedType"
