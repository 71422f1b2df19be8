"""Every example is tested: none can be added, or renamed, without a test that serves it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parents[1] / "examples"


def named(examples: Path) -> set[str]:
    return {file.stem for file in examples.glob("*.yaml")}


def served(tests: Path) -> set[str]:
    """The names that tests call the fixture `example` with."""
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
    assert len(named(EXAMPLES)) >= 14
    assert named(EXAMPLES) == served(TESTS)


def test_an_example_without_a_test_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").touch()
    (tmp_path / "other.yaml").touch()
    (tmp_path / "test_one.py").write_text(
        "def test_one(example):\n    example('one').read()\n\n"
        "def helper(example):\n    example('other').read()\n"
    )
    assert named(tmp_path) - served(tmp_path) == {"other"}


def test_the_readme_lists_every_example() -> None:
    links = re.findall(r"\[`?([\w.]+)`?\]\(([\w.]+\.yaml)\)", (EXAMPLES / "README.md").read_text())
    assert all(text == file for text, file in links)
    assert sorted(file for _, file in links) == sorted(f"{name}.yaml" for name in named(EXAMPLES))
