"""The loss spike of docs/data-order.md, followed from its first block to its last."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.docs.conftest import save_run
from tests.docs.test_commands import Shell, commands
from tests.harness import doc_blocks
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer

import infeed

BLOCKS = doc_blocks.read("docs/data-order.md")
AFTER = next(block.code for block in BLOCKS if block.language == "yaml")
BEFORE = re.sub(r" +remove: .*\n", "", AFTER)


@pytest.fixture
def server_before(folder: Path, nursery: Nursery) -> InfeedServer:
    """A server of the definition from before the change; it is not started."""
    (folder / "before.yaml").write_text(BEFORE)
    (folder / "pipelines.yaml").write_text(AFTER)
    log = folder.parent / "before"
    return InfeedServer("before.yaml", log, cwd=folder, launch=nursery.start)


def test_page_is_followed(folder: Path, server_before: InfeedServer, nursery: Nursery) -> None:
    with server_before, ExitStack() as servers:
        save_run(server_before.address, folder / "run.json", step=300, ranks=2)
        shell = Shell(folder, server_before, nursery)
        for block in BLOCKS:
            if block.language == "sh":
                for command in commands(block.code):
                    shell.run(command, servers)
            elif block.language == "python":
                feed = replayed(block.code, server_before.address, folder)
                assert len(feed) == 10
            elif block.language == "text":
                name = re.match(r"# (\S+)\n", block.code)
                assert name
                (folder / name[1]).write_text(block.code)
    amended = json.loads((folder / "amended.json").read_text())
    assert [one["world_size"] for one in amended["segments"]] == [2, 2]
    assert json.loads((folder / "skipped.json").read_text())["segments"][-1]["step"] == 300
    assert (folder / "step-310.png").stat().st_size


def replayed(code: str, address: str, folder: Path) -> list[infeed.Batch]:
    """Returns the batches of the feed that a block opens."""
    names = {"infeed": infeed, "cursor": json.loads((folder / "run.json").read_text())}
    exec(code.replace("127.0.0.1:7470", address), names)
    feed = names["feed"]
    assert isinstance(feed, infeed.Feed)
    with feed:
        return list(feed)
