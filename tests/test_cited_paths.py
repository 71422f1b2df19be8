"""Paths of the repository that documents, comments and docstrings cite."""

from __future__ import annotations

import io
import re
import tokenize
from fnmatch import filter as matching
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *(
        "client",
        "server",
        "plugins",
        "proto",
        "tests",
        "examples",
        "benchmarks",
        "deploy",
    ),
    *("native", "tools", "docs", "requirements", ".ci"),
)
GENERATED = "client/infeed/v1/"

USERS_FILES = {
    *("hf_data.py", "infeed/example.proto", "my_data.py", "my_functions.py", "my_transforms.py"),
    *(
        "infeed_fixed.py",
        "infeed_invert.py",
        "infeed_steps.py",
        "infeed_walk.py",
        "inner.py",
        "torch_data.py",
    ),
}

_OWN_FILE = re.compile(r"\w\.(?:md|proto|py|sh)$")
"""Files of the repository; users have YAML, JSON and CSV files too."""

_PATH = re.compile(r"(?<![\w/.:~<$}])(?:\.\.?/)*[\w.-]+(?:/[\w.*-]+)*/?")


@cache
def existing() -> frozenset[str]:
    """Returns the files and folders of the repository, relative to its root."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    paths = [path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts]
    return frozenset([*FOLDERS, *(path.as_posix() for path in paths)])


@cache
def endings() -> frozenset[str]:
    """Returns the last parts of every path: documents cite `wire/batch.py` and `batch.py` too."""
    parts = [path.split("/") for path in existing()]
    return frozenset("/".join(part[start:]) for part in parts for start in range(len(part)))


def citing() -> list[str]:
    """Returns the files whose citations are checked."""
    suffixes = {".md", ".proto", ".py", ".sh", ".toml", ".yaml"}
    names = {"Makefile", "Dockerfile", ".ci/run"}
    return sorted(
        path
        for path in existing()
        if (Path(path).suffix in suffixes or path in names) and not path.startswith(GENERATED)
    )


def prose(path: str, text: str) -> list[str]:
    """Returns the parts of a file that cite paths: code of a page, comments of other files."""
    if path.endswith(".md"):
        # A block of a language is a user's, with a user's files.
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        blocks = [block for language, block in fenced if not language]
        outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        return [*blocks, *re.findall(r"`([^`\n]+)`", outside)]
    if path.endswith(".py"):
        return [
            token.string
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT or token.string.startswith('"""')
        ]
    return re.findall(r"(?:#|//) (.*)$", text, re.MULTILINE)


def missing(path: str, text: str) -> list[str]:
    """Returns the cited paths that do not exist."""
    # Most files have no such word at all, and finding their comments takes longer.
    if not unknown(path, [text]):
        return []
    return sorted(unknown(path, prose(path, text)))


def unknown(path: str, parts: list[str]) -> set[str]:
    words = {match.rstrip("/.") for part in parts for match in _PATH.findall(part)}
    return {word for word in words if is_own(word) and not exists(word, Path(path).parent)}


def is_own(word: str) -> bool:
    """Returns whether a word is a path of the repository, if it is a path at all."""
    top, slash, _ = word.partition("/")
    if word in USERS_FILES or any(part.isupper() and part.isalpha() for part in word.split("/")):
        return False  # also a placeholder, as in sources/KIND/source.py
    return (
        (bool(slash) and top in FOLDERS) or word.startswith("../") or bool(_OWN_FILE.search(word))
    )


def exists(word: str, folder: Path) -> bool:
    """Returns whether a path exists, from the root, from the citing file or within a folder."""
    if word.startswith("../"):
        return (ROOT / folder / word).exists()
    return word in endings() or ("*" in word and bool(matching(existing(), word)))


def test_cited_paths_exist() -> None:
    found = {path: missing(path, (ROOT / path).read_text(encoding="utf-8")) for path in citing()}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("docs/a.md", "See `tests/none.py`, `tests/` and `wire/batch.py`.", ["tests/none.py"]),
        ("docs/a.md", "`docs/*.md`, `docs/*.txt`, `data/labels.csv`", ["docs/*.txt"]),
        ("a.py", 'x = "none.py"  # tests/none\n', ["tests/none"]),
        ("a.sh", "cat none.sh # as tools/none does\n", ["tools/none"]),
    ],
)
def test_missing_path_is_found(path: str, text: str, words: list[str]) -> None:
    assert missing(path, text) == words
