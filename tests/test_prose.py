"""Tests of `tools/prose.py`: what each rule finds, and what it lets pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import prose

FUNCTION = '"""Module."""\ndef f():\n    '
OF = "Of"
METHOD = '"""Module."""\nclass A:\n    def f(self):\n        '


def problems(source: str, path: str = "client/infeed/module.py") -> list[str]:
    return [item.problem for item in prose.check_code(Path(path), source)]


def banned() -> list[str]:
    """Returns a word for each alternative that is banned."""
    words = [word for pattern in prose.BANNED for word in pattern.split("|")]
    return [word.replace(r"\s+", " ").replace("?", "") for word in words]


@pytest.mark.parametrize("word", banned())
def test_a_banned_word_is_found_in_code_and_documents(word: str) -> None:
    assert len(problems(f'"""Module."""\nx = "{word}"  # {word}\n')) == 2
    (found,) = prose.check_document(Path("docs/page.md"), f"One\n\n{word.capitalize()} line.\n")
    assert found.line == 3
    assert not list(prose.check_document(Path("docs/page.md"), f"`{word}`\n"))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('"""How it works."""\n', "noun phrase"),
        ("x = 1\n", "begins with a docstring"),
        (FUNCTION + '"""Return x."""\n', "begins with a verb"),
        (METHOD + '"""The result."""\n', "begins with a verb"),
    ],
)
def test_a_wrong_first_line_is_found(source: str, problem: str) -> None:
    (found,) = problems(source)
    assert problem in found


@pytest.mark.parametrize(
    "source",
    [
        "",
        '"""Module: what it has."""\n',
        FUNCTION + '"""Returns x."""\n',
        METHOD.replace("def", "@property\n    def") + '"""The result."""\n',
        '"""Module."""\nthreshold = "untold"\n',
    ],
)
def test_a_correct_source_has_no_problem(source: str) -> None:
    assert problems(source) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("for each in (): pass", "the name 'each'"),
        ("f(each=1)", None),
        (f"# {OF} which one\n", "begins with 'Of which'"),
        (f"x = 'An end. {OF} which it has two.'", "begins with 'Of which'"),
        ("x = 'two, of which one'", None),
        (f"def test_{'x' * 61}(): pass", "has 61 characters of 60"),
        (f"def test_{'x' * 60}(): pass", None),
    ],
)
def test_a_wrong_name_or_sentence_is_found(source: str, problem: str | None) -> None:
    found = problems(f'"""Module."""\n{source}\n', "tests/test_module.py")
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_a_violation_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "CONTRIBUTING.md").touch()
    (tmp_path / "tools").mkdir()
    file = tmp_path / "tools" / "script.py"
    file.write_text('"""Script."""\n')
    assert prose.main([]) == 0
    word = prose.BANNED_IN_NAMES[0]
    file.write_text(f'"""Script for {word}."""\n')
    assert prose.main([]) == 1
    assert capsys.readouterr().out.startswith(f"tools/script.py:1: {word!r}")
