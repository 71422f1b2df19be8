"""Options of a command from the fields of a dataclass or a pydantic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner, Result

from infeed.cli.model_options import option, with_models

PANEL = {"rich_help_panel": "Limits", "metavar": "N"}


@dataclass(frozen=True)
class Plain:
    size: Annotated[int, typer.Option(help="Slots of a batch.", metavar="N")]
    names: list[str] | None = option(None, "A name.", "--name")


class Checked(BaseModel):
    limit: int | None = Field(None, description="Most of them.", json_schema_extra=PANEL)
    loud: bool = Field(False, description="Prints more.")
    words: Annotated[list[str], typer.Option("--word", help="A word.")] = ["a"]


def run(*arguments: str) -> tuple[Result, dict[str, Any]]:
    """Runs a command with both models; returns its result and what it got."""
    got: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @with_models
    def command(
        target: Annotated[str, typer.Argument(help="Where.")], plain: Plain, checked: Checked
    ) -> None:
        got.update(target=target, plain=plain, checked=checked)

    return CliRunner().invoke(app, arguments), got


def test_command_gets_an_instance_of_each_model() -> None:
    options = ("--size", "3", "--name", "x", "--name", "y", "--limit", "2", "--loud")
    result, got = run("here", *options)
    assert result.exit_code == 0, result.output
    assert got["target"] == "here"
    assert got["plain"] == Plain(3, ["x", "y"])
    assert got["checked"] == Checked(limit=2, loud=True, words=["a"])


def test_fields_have_their_defaults() -> None:
    _, got = run("here", "--size", "3")
    assert (got["plain"], got["checked"]) == (Plain(3), Checked())


def test_help_has_description_and_panel() -> None:
    text = run("--help")[0].output
    for part in ("Slots of a batch.", "Most of them.", "Limits", "Prints more.", "A word."):
        assert part in text
    assert "--no-loud" not in text


@pytest.mark.parametrize("arguments", [["here"], ["here", "--size", "x"]])
def test_missing_or_wrong_option_has_status_2(arguments: list[str]) -> None:
    assert run(*arguments)[0].exit_code == 2
