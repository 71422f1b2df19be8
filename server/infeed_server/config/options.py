"""Options as models: each field holds a command option's type, default, help and group.

The command line, the arguments of child processes and the tables in the docs are made from the
fields, so an option is written once.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """Options of a command. Immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_arguments(self) -> list[str]:
        """Returns the command-line arguments for options that differ from their defaults."""
        arguments = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value == field.default or not isinstance(field.json_schema_extra, dict):
                continue
            names: Any = field.json_schema_extra.get("names", [f"--{name.replace('_', '-')}"])
            for single in value if isinstance(value, list) else [value]:
                text = single.value if isinstance(single, Enum) else str(single)
                arguments += [names[0]] if single is True else [names[0], text]
        return arguments


def option(default: Any, text: str, panel: str | None = None, **shown: Any) -> Any:
    """Returns an option's field, with its help, its group and other arguments for `typer.Option`.
    Python checks `min` too; `names` defaults to the field's name."""
    extra = {"rich_help_panel": panel, **shown}
    return Field(default, description=text, ge=shown.get("min"), json_schema_extra=extra)
