"""The command line as a whole: version, help, completion, and what a light install lacks."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import IO, Any

import pytest
import typer
import typer.main
from tests.harness.packages import write_package
from typer.testing import CliRunner

import infeed
from infeed import cli
from infeed.shared.doors import Door

COMMANDS: dict[str, Any] = typer.main.get_command(cli.new_app()).commands


def run(*arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(cli.new_app(), list(arguments), prog_name="infeed", **options)


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"infeed {infeed.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["peek"], ["serve"]])
def test_h_is_help(arguments: list[str]) -> None:
    texts = {run(*arguments, option).stdout for option in ("-h", "--help")}
    assert len(texts) == 1
    assert "Usage: infeed" in texts.pop()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example(name: str) -> None:
    assert re.search(rf"Examples?:\n +infeed {name}\b", COMMANDS[name].help), name


def test_options_of_seconds_and_files_have_their_unit() -> None:
    for name, command in COMMANDS.items():
        for option in command.params:
            metavar = option.metavar or ""
            unit = re.search(r"\b[Ss]econds|[Mm]illiseconds", option.help or "")
            if unit and not option.hidden:
                expected = "SECONDS" if unit[0].lower() == "seconds" else "MS"
                assert metavar == expected, (name, option.name)
            if re.search(r"\(PEM\)|[Aa] file that", option.help or ""):
                assert metavar == "FILE", (name, option.name)


def exit_message(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["infeed", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return str(caught.value.code)


def test_the_light_install_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    message = exit_message(monkeypatch, "demo")
    assert "pip install 'infeed[server]', or 'infeed[cli]' where no data is served" in message


def test_a_package_that_is_broken_breaks_its_command_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = "[infeed.commands]\nhello = infeed_hello:app\nother = json:loads\n"
    write_package(tmp_path, "infeed-hello", entries, infeed_hello="import gone[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "_DOOR", Door("infeed.commands", "command"))
    message = exit_message(monkeypatch, "hello", "--name", "x", "y")
    assert message.startswith("error: the command 'hello' of infeed-hello 1.0 cannot be imported")
    assert "infeed-hello 1.0 is not a typer.Typer" in exit_message(monkeypatch, "other")
    help_text = " ".join(run("--help").stdout.split())
    assert "hello the command 'hello' of infeed-hello 1.0 cannot be imported" in help_text
    assert "peek Shows" in help_text


def test_a_missing_package_of_an_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(entry: EntryPoint) -> Any:
        if entry.extras:
            raise ModuleNotFoundError("no pydantic", name="pydantic")
        return importlib.import_module(entry.module).app

    monkeypatch.setattr(EntryPoint, "load", load)
    assert "needs the package 'pydantic', which is not installed: pip install 'infeed[server]'" in (
        exit_message(monkeypatch, "serve", "pipelines.yaml", "--listen", "127.0.0.1:0")
    )
    assert "Usage: infeed peek" in run("peek", "--help").stdout
    assert "pip install 'infeed[server]'" in run("--help").stdout


def add_failing_command(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    app = typer.Typer()

    @app.command("peek")
    def fail() -> None:
        raise error

    monkeypatch.setattr(EntryPoint, "load", lambda _: app)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("no yaml", name="yaml"),
            "the command 'peek' needs the package 'yaml', which is not installed; install it, or",
        ),
        (NotADirectoryError(20, "Not a directory", "a/b"), "a/b: not a directory"),
        (OSError(28, "No space left on device"), "no space left on device"),  # standard output
    ],
)
def test_a_mistake_of_the_user_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    add_failing_command(monkeypatch, error)
    assert exit_message(monkeypatch, "peek").startswith(f"error: {message}")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no module", name="infeed_server.gone"), OSError("no file name")]
)
def test_a_defect_of_infeed_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    add_failing_command(monkeypatch, error)
    monkeypatch.setattr(sys, "argv", ["infeed", "peek"])
    with pytest.raises(type(error)):
        cli.main()


def test_ctrl_c_while_the_commands_are_imported_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(_: EntryPoint) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EntryPoint, "load", load)
    assert exit_message(monkeypatch, "list") == "130"


@pytest.mark.parametrize("flush", [False, True])
def test_output_that_is_lost_is_an_error(flush: bool) -> None:
    program = (
        "import typer; from infeed import cli; app = typer.Typer()\n"
        f"app.command()(lambda: print('lost', flush={flush}))\n"
        "cli.new_app = lambda _: app\ncli.main()"
    )
    with Path("/dev/full").open("w") as full:
        process = run_program(program, stdout=full)
    assert (process.returncode, process.stderr) == (1, "error: no space left on device\n")
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "w") as unread:
        process = run_program(program, stdout=unread)
    assert (process.returncode, process.stderr) == (1, "")


def run_program(
    program: str, stdout: IO[str] | int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=buffered,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )
