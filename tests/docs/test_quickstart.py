"""The tutorial of docs/quickstart.md, followed from its first block to its last."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infeed_tools.demo.shapes import write_images

PAGE = Path(__file__).parents[2] / "docs/quickstart.md"
ADDRESS = "127.0.0.1:7470"
EPOCHS = "epochs=20"

TRAIN, TEST = 2000, 500
"""Images that `infeed demo` draws for each pipeline."""


def blocks(language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def figures(output: str) -> list[str]:
    return re.findall(r"^step \d+: .*$", output, re.MULTILINE)


def words(text: str) -> str:
    """Returns an output without times, rates, ports and the lines of tables."""
    found = [word for word in text.split() if not re.fullmatch("[\u2500-\u257f]+", word)]
    return re.sub(r"\b\d+\.\d+ s\b", "SECONDS", " ".join(found))


def test_tutorial_is_followed(command_line: Any, tmp_path: Path) -> None:
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert commands[:2] == [["pip", "install", "infeed[server]"], ["infeed", "demo"]]
    for seed, (part, count) in enumerate((("train", TRAIN), ("test", TEST))):
        assert len([*write_images(tmp_path / "infeed-demo" / part, count, seed)]) == count
    shown = iter(blocks("text"))
    address = command_line.new_address()

    def run(command: list[str]) -> Any:
        arguments = [address if word == ADDRESS else word for word in command]
        arguments = arguments[arguments[0] == "infeed" :]
        process = command_line.start(*arguments, cwd=tmp_path, COLUMNS="140")
        if arguments[0] in ("python", "serve"):
            return process
        assert process.wait() == 0, process.stderr
        return process

    def serve() -> Any:
        server = run(["infeed", "serve", "pipelines.yaml", "--listen", address, "--http", "off"])
        assert server.address == address
        return server

    rest: Iterator[list[str]] = iter(commands[2:])
    assert next(rest) == ["infeed", "init", "infeed-demo"]
    begun = run(["infeed", "init", "infeed-demo"])
    for part in next(shown).split("  ...\n"):
        assert words(part) in words(begun.stdout + begun.stderr)
    command = next(rest)
    assert command == ["infeed", "check", "pipelines.yaml", "--scan"]
    assert "pipelines.yaml: good" in run(command).stdout
    assert next(rest) == ["infeed", "serve", "pipelines.yaml"]
    server = serve()
    run(next(rest))
    assert (tmp_path / "batch.png").stat().st_size > 10_000

    (program,) = blocks("python")
    name = re.match(r"# (\S+)\n", program)
    assert name
    (tmp_path / name[1]).write_text(program.replace(ADDRESS, address).replace(EPOCHS, "epochs=8"))
    train = next(rest)
    killed = run(train)
    killed.wait_until(lambda: "step 149" in killed.stdout, "it has trained")
    killed.signal(signal.SIGINT)
    assert killed.wait() != 0
    resumed = run(train)
    begin = int(resumed.read_line().removeprefix("begins with step "))
    server.signal(signal.SIGINT)
    assert server.wait() == 0
    server = serve()
    assert resumed.wait() == 0, resumed.stderr
    audited = run(next(rest))
    before, after = figures(killed.stdout), figures(resumed.stdout)
    assert 0 <= begin // 50 - len(before) <= 1  # a checkpoint is saved before its line is printed

    # The page has the figures of a run that was not killed here.
    of_killed, _, of_audit = shown
    of_page = figures(of_killed)
    assert before == of_page[: len(before)]
    assert {*after} <= {*of_page}
    assert words(of_audit) in words(audited.stdout)
    assert not [*rest]
    server.signal(signal.SIGINT)
    assert server.wait() == 0
