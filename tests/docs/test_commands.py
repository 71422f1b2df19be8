"""The `sh` blocks of the pages, run as they stand in a folder with the files that they name.

Their addresses become the server's, servers that they start listen on free ports and end with the
block. `pip install` is not run: its extras are looked up. Nor is `make`, whose targets
tests/test_repository.py looks up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.harness import doc_blocks
from tests.harness.nursery import Nursery
from tests.harness.process import Process
from tests.harness.server import InfeedServer

PYPROJECT = (doc_blocks.ROOT / "pyproject.toml").read_text()


def commands(code: str) -> Iterator[str]:
    """Yields the commands of a block, each as one line without its comment."""
    for line in code.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s+)#.*$", "", line)
        if command.strip():
            yield command


class Shell:
    """A working directory, in which commands run one after another."""

    def __init__(self, folder: Path, server: InfeedServer, nursery: Nursery) -> None:
        self._folder = folder
        self._server = server
        self._nursery = nursery
        self._count = 0

    def run(self, command: str, servers: ExitStack) -> None:
        """Runs a command; a server goes on until the end of `servers`."""
        command = re.sub(r"(127\.0\.0\.1|\bhost-[ab]):7470", self._server.address, command)
        command = command.replace("127.0.0.1:7471", self._server.http)
        self._count += 1
        words = shlex.split(command)
        if words[0] == "pip":
            assert_extras_exist(words)
        elif words[0] == "make":
            pass
        elif words[:2] == ["infeed", "serve"]:
            self._serve(words[2], words[3:], servers)
        elif words[0] == "infeed" and not re.search(r"[|>&;]", command):
            self._run_infeed(words[1:])
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=self._folder,
                env={**os.environ, "PATH": path},
                check=True,
            )

    def _serve(self, definition: str, options: list[str], servers: ExitStack) -> None:
        for option in ("--listen", "--http"):
            if option in options:
                at = options.index(option)
                del options[at : at + 2]
        self._server = servers.enter_context(
            InfeedServer(
                definition,
                self._folder.parent / f"server-{self._count}",
                *options,
                http="127.0.0.1:0",
                cwd=self._folder,
                launch=self._nursery.start,
            )
        )

    def _run_infeed(self, words: list[str]) -> None:
        if words[0] == "loadtest":
            # The load that the page asks for, shorter, with any result of this machine.
            words = [*words, "--duration", "1", "--trainers", "2"]
        elif words[0] == "profile":
            words = [*words, "--seconds", "0.5"]
        elif words[0] == "init":
            (self._folder / "pipelines.yaml").unlink(missing_ok=True)
        log = self._folder.parent / f"command-{self._count}"
        process: Process = self._nursery.start(words, log, self._folder)
        status = process.wait()
        is_slow = words[0] == "loadtest" and "MISSED: utilisation" in process.stdout
        output = f"infeed {shlex.join(words)}\n{process.stdout}{process.stderr}"
        assert status == 0 or is_slow, output


def assert_extras_exist(words: list[str]) -> None:
    """Checks that a command installs infeed, with extras that it has."""
    packages = [word for word in words[2:] if not word.startswith("-")]
    assert words[1] == "install", words
    for package in packages:
        match = re.fullmatch(r"(?:infeed|\.)(?:\[([\w,]+)\])?", package)
        if match and match[1]:
            for extra in match[1].split(","):
                assert re.search(rf"^{extra} = \[", PYPROJECT, re.MULTILINE), f"no extra {extra}"


@pytest.mark.parametrize("block", doc_blocks.to_run("sh"), ids=str)
def test_commands_run(
    block: doc_blocks.Block, folder: Path, server: InfeedServer, nursery: Nursery
) -> None:
    shell = Shell(folder, server, nursery)
    with ExitStack() as servers:
        for command in commands(block.code):
            shell.run(command, servers)
