"""A census of the pages' code blocks: each has a language, and a test that runs it or a reason."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.harness import doc_blocks

RUN_BY = {
    "diff": "tests/examples/test_diffs.py",
    "python": "tests/docs/test_programs.py",
    "sh": "tests/docs/test_commands.py",
    "yaml": "tests/docs/test_definitions.py",
}
"""Language → the tests that run its blocks, but for the pages of `test_programs.TESTED_BY` and
`doc_blocks.FOLLOWED`."""

SHOWN = {"json", "text"}
"""Languages of pictures and outputs."""


@pytest.mark.parametrize("page", doc_blocks.PAGES)
def test_blocks_have_a_language(page: str) -> None:
    for block in doc_blocks.read(page):
        assert block.language in {*RUN_BY, *SHOWN}, f"{block} is of no language that is run"
        if block.language in SHOWN:
            assert block.not_run is None, f"{block} is not run in any case"
            shown = block.code.lstrip()
            assert not re.match(r"(infeed [a-z]+ [^ (]|pip |docker |make |import )", shown), (
                f"{block} is code"
            )


@pytest.mark.parametrize("page", doc_blocks.PAGES)
def test_marks_stand_above_blocks(page: str) -> None:
    text = (doc_blocks.ROOT / page).read_text(encoding="utf-8")
    marked = sum(block.not_run is not None for block in doc_blocks.read(page))
    assert text.count("<!-- not run") == marked, f"{page} has a mark that belongs to no block"


def test_most_blocks_are_run() -> None:
    blocks = [block for page in doc_blocks.PAGES for block in doc_blocks.read(page)]
    count = Counter(block.not_run is None for block in blocks if block.language in RUN_BY)
    assert count[True] > 5 * count[False], count
