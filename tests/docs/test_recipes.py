"""The recipes of docs/recipes.md: each section is served, and its programs train."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.harness import doc_blocks

import infeed
from infeed_server.pipeline.load import from_yaml

PAGE = "docs/recipes.md"
LOOP = "The loop"
"""The section of the program that trains on each pipeline `train`."""


def sections() -> dict[str, list[doc_blocks.Block]]:
    """Returns the blocks of each section with a definition, by its heading."""
    text = (doc_blocks.ROOT / PAGE).read_text(encoding="utf-8")
    lines = {
        text.count("\n", 0, match.start()) + 1: match[1]
        for match in re.finditer(r"^## (.+)$", text, re.MULTILINE)
    }
    found: dict[str, list[doc_blocks.Block]] = {}
    for block in doc_blocks.read(PAGE):
        heading = lines[max(line for line in lines if line < block.line)]
        found.setdefault(heading, []).append(block)
    return found


RECIPES = sections()
(TRAIN,) = RECIPES.pop(LOOP)


@pytest.mark.parametrize("heading", RECIPES)
def test_recipe_trains(
    heading: str, folder: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    steps = 0

    def train_step(*_: Any) -> None:
        nonlocal steps
        steps += 1

    def run(block: doc_blocks.Block, address: str) -> None:
        code = block.code.replace("127.0.0.1:7470", address)
        exec(compile(code, str(block), "exec"), {"infeed": infeed, "train_step": train_step})

    address = ""
    for block in RECIPES[heading]:
        if block.language == "yaml":
            Path("pipelines.yaml").write_text(block.code)
            address = str(serve(from_yaml("pipelines.yaml")).address)
            run(TRAIN, address)
        elif block.language == "sh":
            subprocess.run(["bash", "-euc", block.code], check=True)
        elif module := re.match(r"# (\w+\.py)\n", block.code):
            (folder / module[1]).write_text(block.code)
        else:
            for framework in re.findall(r"^import (torch)$", block.code, re.MULTILINE):
                pytest.importorskip(framework)
            run(block, address)
    assert steps
