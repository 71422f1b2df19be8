"""The `diff` blocks of pages: their new lines are lines of the example that they name."""

from __future__ import annotations

import re

import pytest
from tests.harness import doc_blocks

DIFFS = [
    pytest.param(block.code, id=str(block))
    for page in doc_blocks.PAGES
    for block in doc_blocks.read(page)
    if block.language == "diff"
]


def lines(diff: str, sign: str) -> list[str]:
    return [line[1:] for line in diff.splitlines() if line[:1] == sign and line[:3] != sign * 3]


def test_pages_have_diffs() -> None:
    assert DIFFS


@pytest.mark.parametrize("diff", DIFFS)
def test_new_lines_follow_each_other_in_the_example(diff: str) -> None:
    (name,) = re.findall(r"^\+\+\+ (\S+)$", diff, re.MULTILINE)
    source = iter((doc_blocks.ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines(diff, "+")
    for line in lines(diff, "+"):
        assert line in source, f"{name} has no such line, or not in this order: {line}"
