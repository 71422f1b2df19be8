"""Command options from models: each field of a dataclass or pydantic model is one option.

    @with_models
    def audit(target: Target, options: AuditOptions, connection: Connection) -> None: ...

The help lists the fields of both models, and the command gets an instance of each.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ParameterInfo

from infeed.shared.errors import InvalidRequestError


def with_models(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces a command's model parameters with one option for each field of the model."""
    hints = get_type_hints(command, include_extras=True)
    models = {name: model_options(hint) for name, hint in hints.items() if _is_model(hint)}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        shown += models.get(name, [own])

    @functools.wraps(command)
    def run(**values: Any) -> None:
        try:
            made = {
                name: hints[name](**{field.name: values.pop(field.name) for field in fields})
                for name, fields in models.items()
            }
        except InvalidRequestError as error:
            raise typer.BadParameter(error.message) from None
        command(**values, **made)

    # Typer reads the parameters from both.
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """Returns a dataclass field that is an option; `more` is passed to `typer.Option`.

    Without `names`, the option is named after the field.
    """
    extra = {**more, **({"names": names} if names else {})}
    return dataclasses.field(default=default, metadata={"help": help_text, "extra": extra})


def model_options(model: Any) -> list[inspect.Parameter]:
    """Returns a parameter for each field of a model, as Typer reads it.

    A dataclass field is made by `option`. A pydantic field's description is the help text, and its
    `json_schema_extra` holds further arguments for `typer.Option`, such as `metavar` and
    `rich_help_panel`, and the option's `names`. Alternatively, a field's annotation may contain a
    `typer.Option` or `typer.Argument`.
    """
    if dataclasses.is_dataclass(model):
        fields = [
            (field.name, field.default, field.metadata.get("help"), field.metadata.get("extra"))
            for field in dataclasses.fields(model)
        ]
    else:
        fields = [
            (
                name,
                field.get_default(call_default_factory=True),
                field.description,
                field.json_schema_extra,
            )
            for name, field in model.model_fields.items()
        ]
    hints = get_type_hints(model, include_extras=True)
    parameters = []
    for name, default, help_text, more in fields:
        hint, extra = hints[name], dict(more or {})
        if not any(isinstance(part, ParameterInfo) for part in get_args(hint)):
            # An explicit name keeps Typer from adding a second option, --no-….
            names = extra.pop("names", [f"--{name.replace('_', '-')}"])
            hint = Annotated[hint, typer.Option(*names, help=help_text, **extra)]
        is_missing = default is dataclasses.MISSING or "Undefined" in type(default).__name__
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hint,
                default=inspect.Parameter.empty if is_missing else default,
            )
        )
    return parameters


def _is_model(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hasattr(hint, "model_fields")
