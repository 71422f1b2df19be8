"""The `diff` blocks of pages: their new lines are lines of the example that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFS = [
    pytest.param(match[1], id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
]


def lines(diff: str, sign: str) -> list[str]:
    return [line[1:] for line in diff.splitlines() if line[:1] == sign and line[:3] != sign * 3]


def test_pages_have_diffs() -> None:
    assert DIFFS


@pytest.mark.parametrize("diff", DIFFS)
def test_new_lines_follow_each_other_in_the_example(diff: str) -> None:
    (name,) = re.findall(r"^\+\+\+ (\S+)$", diff, re.MULTILINE)
    source = iter((ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines(diff, "+")
    for line in lines(diff, "+"):
        assert line in source, f"{name} has no such line, or not in this order: {line}"
