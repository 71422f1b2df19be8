"""The command line, as often as one likes: processes of their own that need not load TensorFlow."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.harness.nursery import ForkedProcess, Nursery
from tests.harness.waiting import TIMEOUT_SECONDS, wait_until


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    wait_until(condition, what, seconds)


class Command(ForkedProcess):
    """A command that was started: its process, and what it says."""

    def __init__(self, log: Path, order: Callable[[], None]) -> None:
        self.started = time.monotonic()
        super().__init__(log, order)

    def wait(self, seconds: float = TIMEOUT_SECONDS) -> int:
        """The exit status; that of a process ended by signal n is -n."""
        status = super().wait(seconds)
        self.seconds = time.monotonic() - self.started
        return status

    @property
    def address(self) -> str:
        """Of a server, once it serves."""
        self.wait_until(lambda: "\n" in self.stdout, "it serves")
        assert self.stdout.startswith("serving on "), self.stderr
        return self.stdout.split()[2]


class CommandLine:
    """Starts `infeed ...`, or `python FILE ...`, in processes of their own."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._count = 0

    def start(self, *words: str, cwd: Path, **env: str) -> Command:
        log = self._folder / str(self._count)
        self._count += 1
        return self._nursery.start(words, log, cwd, env, Command)

    def run(self, *words: str, cwd: Path, **env: str) -> Command:
        command = self.start(*words, cwd=cwd, **env)
        command.wait()
        return command

    def serve(self, text: str, cwd: Path, listen: str = "127.0.0.1:0", *options: str) -> Command:
        """A server on the YAML text; its paths are seen from `cwd`."""
        part = cwd / "pipelines.yaml.part"
        part.write_text(text)
        part.rename(cwd / "pipelines.yaml")  # a server that starts reads the old text or the new
        words = ("serve", "pipelines.yaml", "--listen", listen, "--http", "off", *options)
        return self.start(*words, cwd=cwd)

    def refused(self, text: str, cwd: Path) -> str:
        """What a server that must not start says: one error, no traceback of infeed's own."""
        command = self.serve(text, cwd)
        assert command.wait() == 1, command.stderr
        assert command.stdout == ""
        before, error, message = ("\n" + command.stderr).partition("\nerror: ")
        assert error, command.stderr
        assert "Traceback" not in before
        return message.rstrip("\n")


@pytest.fixture(scope="session")
def command_line(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("commands"), nursery)


@pytest.fixture(scope="session")
def few_photos(
    photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    """The first 60 of `photos`, as a folder of its own: for tests that do not need them all."""
    folder = tmp_path_factory.mktemp("few_photos")
    names = sorted(photos.labels)[:60]
    for name in names:
        shutil.copy(photos.folder / name, folder)
    labels = {name: photos.labels[name] for name in names}
    rows = ["file,label", *(f"{name},{label}" for name, label in labels.items())]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return SimpleNamespace(folder=folder, labels=labels, count=len(labels))
