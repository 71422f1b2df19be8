"""Checks that every example is served by a test and listed in the README."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parents[1] / "examples"


def example_names(examples: Path) -> set[str]:
    return {file.stem for file in examples.glob("*.yaml")}


def served_names(tests: Path) -> set[str]:
    """Returns the names that tests pass to the fixture `example`."""
    calls = (
        node
        for file in tests.glob("test_*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    return {
        str(call.args[0].value)
        for call in calls
        if call.func.id == "example"  # type: ignore[attr-defined]
        and isinstance(call.args[0], ast.Constant)
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
