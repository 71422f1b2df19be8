"""The check of prose and names in `make lint`: plain technical English in code and documents.

Rules and reasons: CONTRIBUTING.md. Prints `file:line: problem` for each violation, and exits with
status 1 if there is any. It checks only what a program can decide.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

CODE = (
    *("client", "server", "plugins", "native"),
    *("tests", "examples", "benchmarks", "deploy", "tools"),
)
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "docs", "proto", "plugins"),
    *("benchmarks", "deploy", "examples"),
)
GENERATED = ("client/infeed/v1/",)
SELF = "tools/prose.py"

BANNED = {
    r"as\s+of": "as in, as for, at, or: like",
    r"but\s+for": "except",
    r"is\s+of": "has, belongs to, or: comes from",
    r"so\s+many": "the number",
    r"whatever": "all that, any, or: under any",
    r"anew": "again, or: re-…",
    r"anybody|anyone": "name the client, peer, rank or thread",
    r"for\s+ever": "forever, or: without a timeout",
    r"nobody|no\s+one": "name what is absent: no client, no rank",
    r"somebody|someone": "name the client, peer, rank or thread",
    r"strangers?": "an unauthenticated client, an unknown id",
    r"unasked": "without authentication, unrequested",
}
"""Words that hide the subject of a sentence or are unusual here, with what to write instead."""

BANNED_IN_NAMES = ("anybody", "nobody", "somebody", "stranger")

MAX_TEST_NAME = 60
"""Maximum characters of a test's name: a longer one is a sentence, not a condition and a result."""

_PROSE = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
_OF_WHICH = re.compile(
    r"(?<!\ball)(?<!\bone)(?<!\beach)(?<!\bsome)(?<!\bnone)(?<!\bboth)(?<!\bmany)"
    r"[\s#]+of\s+which\b",
    re.IGNORECASE,
)
"""`of which`, except after a word that counts, as in `each of which`."""
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NOT_A_NOUN = ("How", "What", "When", "Where", "Whether", "Which", "Who", "Why")
_VERB = re.compile(r"(?!(?:As|Is|This)\b)[A-Z][a-z-]*s\b")
_TEXTS = {
    *(tokenize.COMMENT, tokenize.STRING),
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),  # from Python 3.12 on
}


class Violation(NamedTuple):
    """One problem, at a line of a file."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def check_code(path: Path, source: str) -> Iterator[Violation]:
    """Checks comments, docstrings, other strings, names, and the first lines of docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _TEXTS:
            yield from _banned_words(path, token.start[0], token.string)
        elif token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            parts = {part.lower() for part in _NAME_PARTS.findall(token.string)}
            for word in parts.intersection(BANNED_IN_NAMES):
                yield Violation(path, token.start[0], f"the name {token.string!r} has {word!r}")
    module = ast.parse(source)
    yield from _first_lines(path, module)
    yield from _names(path, module)


def check_document(path: Path, text: str) -> Iterator[Violation]:
    """Checks the words of a Markdown, proto or YAML file; code in backticks is a contract."""
    yield from _banned_words(path, 1, _INLINE_CODE.sub("``", text))


def main(arguments: list[str]) -> int:
    """Checks the given files and folders, or the whole repository; returns the exit status."""
    wanted = [Path(argument).resolve() for argument in arguments] or [ROOT]
    violations = [
        violation
        for path, is_code in _files()
        if any(path.is_relative_to(item) for item in wanted)
        for violation in (check_code if is_code else check_document)(
            path.relative_to(ROOT), path.read_text(encoding="utf-8")
        )
    ]
    for violation in violations:
        print(violation)
    if violations:
        print(f"{len(violations)} violations; CONTRIBUTING.md has the rules", file=sys.stderr)
    return 1 if violations else 0


def _files() -> Iterator[tuple[Path, bool]]:
    """Yields each file that is checked, and whether it is Python."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name != SELF and not name.startswith(GENERATED):
                yield path, True
    for entry in DOCUMENTS:
        found = ROOT / entry
        for path in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if path.suffix in (".md", ".proto", ".yaml"):
                yield path, False


def _banned_words(path: Path, first_line: int, text: str) -> Iterator[Violation]:
    for match in _PROSE.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        word = match[0].lower()
        advice = next(to for pattern, to in BANNED.items() if re.fullmatch(pattern, word))
        yield Violation(path, line, f"{match[0]!r}: {advice}")

    for match in _OF_WHICH.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        yield Violation(path, line, "'of which': whose, where, or a sentence of its own")


def _names(path: Path, module: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "each":
            yield Violation(path, node.lineno, "the name 'each': name the thing, as in 'batch'")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_")
            if len(name) > MAX_TEST_NAME:
                problem = f"{node.name} has {len(name)} characters of {MAX_TEST_NAME}"
                yield Violation(path, node.lineno, problem)


def _first_lines(path: Path, module: ast.Module) -> Iterator[Violation]:
    first = _first_line(module)
    is_test = path.parts[0] == "tests"
    if first is None:
        if module.body:
            yield Violation(path, 1, "a module begins with a docstring")
    elif first.split(maxsplit=1)[0].rstrip(",:") in _NOT_A_NOUN:
        yield Violation(path, 1, f"a module's first line is a noun phrase: {first!r}")
    for node in ast.walk(module):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and not is_test and not _is_property(node):
            first = _first_line(node)
            if first is not None and node.name != "__init__" and not _VERB.match(first):
                problem = f"{node.name}: a function's first line begins with a verb: {first!r}"
                yield Violation(path, node.lineno, problem)


def _first_line(node: ast.Module | ast.FunctionDef) -> str | None:
    docstring = ast.get_docstring(node)
    return docstring.splitlines()[0] if docstring else None


def _is_property(node: ast.FunctionDef) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
