"""Tables of the command line: the commands, and the options of each."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from typing import Any

import typer.main
from tools.docs.docstrings import first_paragraph
from tools.docs.markdown import DocsError, Table, cell, code

from infeed.cli import new_app
from infeed.cli.connection import Connection

_Row = tuple[str, str, str]
"""An option's name, default and meaning."""

_CONNECTION = frozenset(option.name for option in dataclasses.fields(Connection))
"""The options of every command that connects, which have a table of their own."""

_EVERYWHERE = frozenset({"as_json", "timeout"})
"""Options with the same meaning in each command that has them; the page explains them once."""

_FEW = 3
"""Number of options up to which the page tells them in its text."""

_DEFAULT = re.compile(r"\s*Default: (.+?)\.?$")
_VALUE = re.compile(r"\S*[\d:]\S*")
_CODE = re.compile(r"--[a-z-]+|(?<!\w)'[^']+'")
"""An option, or a value in quotation marks."""


def tables() -> dict[str, Table]:
    """Returns a table of the commands, one of the options that several share, and one for each
    command and group of options with more than a few."""
    commands: dict[str, Any] = typer.main.get_command(new_app()).commands
    rows: dict[tuple[str, str], list[_Row]] = {}
    users: dict[_Row, list[str]] = {}
    for name, command in commands.items():
        connects = _CONNECTION.issubset(parameter.name for parameter in command.params)
        common = _EVERYWHERE | _CONNECTION if connects else _EVERYWHERE
        for parameter in command.params:
            if not (parameter.hidden or parameter.name in common):
                row = _row(name, parameter)
                rows.setdefault((name, _group(parameter)), []).append(row)
                users.setdefault(row, []).append(code(name))
    by_use = sorted(users.items(), key=lambda item: -len(item[1]))
    shared = {row: names for row, names in by_use if len(names) > 1}
    own = {place: [row for row in options if row not in shared] for place, options in rows.items()}
    columns = ("option", "default", "meaning", "commands")
    return {
        "commands": _commands(commands),
        "shared-options": Table(
            columns, [(*row, ", ".join(names)) for row, names in shared.items()]
        ),
        "connection-options": _connection_options(commands["peek"]),
        **{
            f"command.{name}{group}": Table(
                (f"option of `infeed {name}`", "default", "meaning"), options
            )
            for (name, group), options in own.items()
            if len(options) > _FEW
        },
    }


def _group(parameter: Any) -> str:
    """Returns `.data-service` for the help panel "Data service", empty for the usual options."""
    panel = getattr(parameter, "rich_help_panel", None)
    return f".{panel.lower().replace(' ', '-')}" if panel else ""


def _commands(commands: dict[str, Any]) -> Table:
    rows = [
        (code(f"infeed {name}"), cell(first_paragraph(command.help)))
        for name, command in commands.items()
    ]
    return Table(("command", "does"), rows)


def _row(command: str, parameter: Any) -> _Row:
    text = cell(_DEFAULT.sub("", _help(command, parameter)))
    return _name(parameter), _default(parameter), text


def _connection_options(command: Any) -> Table:
    rows = [
        (_name(param), code(param.envvar) if param.envvar else "", cell(_help("peek", param)))
        for param in command.params
        if param.name in _CONNECTION
    ]
    return Table(("option of commands", "environment", "meaning"), rows)


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(parameter.name.upper())
    return code(parameter.opts[0])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if match := _DEFAULT.search(parameter.help or ""):
        return code(match[1]) if _VALUE.fullmatch(match[1]) else cell(match[1])
    default = parameter.default
    if isinstance(default, Enum):
        default = default.value
    return "" if default is None or default is False else code(default)


def _help(command: str, parameter: Any) -> str:
    if not parameter.help:
        raise DocsError(f"infeed {command}: {_name(parameter)} has no help")
    return _CODE.sub(lambda match: code(match[0].strip("'")), parameter.help)
