"""The command line, as often as one likes: processes of their own that need not load TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# A process that has imported all that `infeed serve` needs, and forks one that runs the command
# for every line of its input. A watcher beside each keeps its exit status.
NURSERY = """
import json, os, runpy, signal, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import infeed.cli, infeed_server.cli, infeed_server.runtime.server, infeed_server.runtime.signals
import infeed_server.progress

def command(order):
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(order["log"] + "." + name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    sys.stdin.close()
    sys.path[0] = ""
    if order["words"][0] == "python":
        sys.argv = order["words"][1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv = ["infeed", *order["words"]]
        infeed.cli.main()

def keep(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    if os.fork():
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        command(order)
        sys.exit(0)
    keep(order["log"] + ".pid", str(child))
    _, status = os.waitpid(child, 0)
    keep(order["log"] + ".status", str(os.waitstatus_to_exitcode(status)))
    os._exit(0)
"""


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s: {what}")
        time.sleep(0.01)


@dataclass
class Command:
    """A command that was started: its process, and what it says."""

    log: Path
    started: float

    def __post_init__(self) -> None:
        pid = self._file("pid")
        until(pid.exists, 60, "no process")
        self.pid = int(pid.read_text())

    @property
    def stdout(self) -> str:
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        return self._text("stderr")

    @property
    def ended(self) -> bool:
        return self._file("status").exists()

    def wait(self, seconds: float = 60) -> int:
        """The exit status; that of a process ended by signal n is -n."""
        until(lambda: self.ended, seconds, f"still runs: {self.stderr}")
        self.seconds = time.monotonic() - self.started
        return int(self._file("status").read_text())

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if not self.ended:
            self.signal(signal.SIGKILL)
            self.wait()

    @property
    def address(self) -> str:
        """Of a server, once it serves."""
        until(lambda: "\n" in self.stdout or self.ended, 60, f"no server: {self.stderr}")
        assert self.stdout.startswith("serving on "), self.stderr
        return self.stdout.split()[2]

    def _file(self, kind: str) -> Path:
        return self.log.with_name(f"{self.log.name}.{kind}")

    def _text(self, kind: str) -> str:
        file = self._file(kind)
        return file.read_text() if file.exists() else ""


class CommandLine:
    """Starts `infeed ...`, or `python FILE ...`, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commands: list[Command] = []
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, text=True
        )

    def start(self, *words: str, cwd: Path, **env: str) -> Command:
        log = self._folder / str(len(self._commands))
        order = {"words": words, "cwd": str(cwd), "log": str(log), "env": env}
        started = time.monotonic()
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(json.dumps(order) + "\n")
        self._nursery.stdin.flush()
        command = Command(log, started)
        self._commands.append(command)
        return command

    def run(self, *words: str, cwd: Path, **env: str) -> Command:
        command = self.start(*words, cwd=cwd, **env)
        command.status = command.wait()
        return command

    def serve(self, text: str, cwd: Path, listen: str = "127.0.0.1:0", *options: str) -> Command:
        """A server on the YAML text; its paths are seen from `cwd`."""
        (cwd / "pipelines.yaml").write_text(text)
        words = ("serve", "pipelines.yaml", "--listen", listen, "--http", "off", *options)
        return self.start(*words, cwd=cwd)

    def refused(self, text: str, cwd: Path) -> str:
        """What a server that must not start says: one error, no traceback of infeed's own."""
        command = self.serve(text, cwd)
        assert command.wait(30) == 1, command.stderr
        assert command.stdout == ""
        before, error, message = ("\n" + command.stderr).partition("\nerror: ")
        assert error, command.stderr
        assert "Traceback" not in before
        return message.rstrip("\n")

    def end(self) -> None:
        for command in self._commands:
            command.kill()
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        self._nursery.wait(30)


@pytest.fixture(scope="session")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    started = CommandLine(tmp_path_factory.mktemp("commands"))
    yield started
    started.end()
