"""Checks that every example is served by a test and listed in the README."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools.gallery.entries import ENTRIES

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parents[1] / "examples"


def example_names(examples: Path) -> set[str]:
    return {file.stem for file in examples.glob("*.yaml")}


def served_names(tests: Path) -> set[str]:
    """Returns the names of examples in the gallery, or that tests have as texts."""
    return {entry.file for entry in ENTRIES} | {
        str(node.value)
        for file in tests.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in example_names(EXAMPLES)
    }


def test_every_example_is_served_by_a_test() -> None:
    assert len(example_names(EXAMPLES)) >= 14
    assert example_names(EXAMPLES) == served_names(TESTS)


def test_the_readme_lists_every_example() -> None:
    links = re.findall(r"\[`?([\w.]+)`?\]\(([\w.]+\.yaml)\)", (EXAMPLES / "README.md").read_text())
    assert all(text == file for text, file in links)
    assert sorted(file for _, file in links) == sorted(
        f"{name}.yaml" for name in example_names(EXAMPLES)
    )


def test_the_readme_lists_every_training() -> None:
    links = re.findall(
        r"^\| \[([\w.]+)\]\(([\w.]+\.py)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )
    assert all(text == file for text, file in links)
    programs = sorted({file.name for file in EXAMPLES.glob("*.py")} - {"functions.py"})
    assert [file for _, file in links] == programs
