"""The command line in processes forked from the nursery."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.harness.nursery import ForkedProcess, Nursery


class Command(ForkedProcess):
    """A process of `infeed` or of a Python program."""

    @property
    def address(self) -> str:
        """The address of a server, once it serves."""
        self.wait_until(lambda: "\n" in self.stdout, "it serves")
        assert self.stdout.startswith("serving on "), self.stderr
        return self.stdout.split()[2]

    @property
    def http(self) -> str:
        """The address of the control plane, once the server serves."""
        assert self.address
        return self.stdout.split("(http ")[1].split(")")[0]

    def error(self) -> str:
        """Waits for a command that must fail with an error; returns its message."""
        assert self.wait() == 1, self.stderr
        before, prefix, message = f"\n{self.stderr}".rpartition("\nerror: ")
        assert prefix, self.stderr
        assert "Traceback" not in before
        return message.rstrip("\n")


class CommandLine:
    """Starts `infeed ...`, or `python FILE ...`, in child processes."""

    def __init__(self, folder: Path, nursery: Nursery, new_address: Callable[[], str]) -> None:
        self.new_address = new_address
        """Returns an address with a reserved port, for a server that restarts."""
        self._folder = folder
        self._nursery = nursery
        self._count = 0

    def start(self, *arguments: str, cwd: Path, **env: str) -> Command:
        """Starts a command."""
        log = self._folder / str(self._count)
        self._count += 1
        return self._nursery.start(arguments, log, cwd, env, Command)

    def run(self, *arguments: str, cwd: Path, **env: str) -> Command:
        """Starts a command, and waits for its end."""
        command = self.start(*arguments, cwd=cwd, **env)
        command.wait()
        return command

    def serve(self, text: str, cwd: Path, listen: str | None = None, *options: str) -> Command:
        """Starts a server on YAML text, whose paths are relative to `cwd`."""
        part = cwd / "pipelines.yaml.part"
        part.write_text(text)
        part.rename(cwd / "pipelines.yaml")  # a server that starts reads the old text or the new
        arguments = ("serve", "pipelines.yaml", "--listen", listen or self.new_address())
        return self.start(*arguments, "--http", "off", *options, cwd=cwd)

    def serve_error(self, text: str, cwd: Path) -> str:
        """Returns the error of a server that must not start on this YAML text."""
        command = self.serve(text, cwd)
        message = command.error()
        assert command.stdout == ""
        return message
