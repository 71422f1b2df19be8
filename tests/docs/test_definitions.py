"""The `yaml` blocks of the pages: `infeed check` reads samples of each pipeline. Sources that a
sentence shows are only parsed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from tests.harness import doc_blocks
from tests.harness.nursery import Nursery
from tests.harness.process import Process

from infeed_server.pipeline.load import parse

PACKAGES = {
    "arrayrecord": "array_record",
    "parquet": "pyarrow",
}
"""What a definition names → the package that it needs."""


def write_modules(page: str, folder: Path) -> None:
    """Writes the Python blocks that begin with the name of a file."""
    for block in doc_blocks.to_run("python", page):
        name = re.match(r"# (\w+\.py)\n", block.code)
        if name:
            with (folder / name[1]).open("a") as out:
                out.write(block.code)


def source_lines() -> list[str]:
    """Returns the code spans of the pages on sources that are the line `source` of a pipeline."""
    pages = (doc_blocks.ROOT / "docs").glob("*sources.md")
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return sorted({span for text in texts for span in re.findall(r"`(source: [^`]+)`", text)})


@pytest.mark.parametrize("block", doc_blocks.to_run("yaml"), ids=str)
def test_definition_is_good(block: doc_blocks.Block, folder: Path, nursery: Nursery) -> None:
    for word, package in PACKAGES.items():
        if word in block.code and importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    write_modules(block.page, folder)
    (folder / "page.yaml").write_text(block.code)
    log = folder.parent / "check"
    process: Process = nursery.start(["check", "page.yaml"], log, folder)
    assert process.wait() == 0, process.stdout + process.stderr


@pytest.mark.parametrize("line", source_lines())
def test_source_of_a_sentence_is_valid(line: str) -> None:
    parse({**yaml.safe_load(line), "batch": 2})
