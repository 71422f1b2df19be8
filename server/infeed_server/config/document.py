"""YAML documents with the line of every key, for error messages."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infeed.shared.errors import ConfigError, KeyPath, format_path


@dataclass(frozen=True)
class Problem:
    """A mistake in a file. `path` leads to the wrong value; empty means the whole file."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


@dataclass
class Document:
    """A YAML file's value, the line of each part, and the file's mistakes as YAML."""

    file: str
    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict, repr=False)
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Returns a problem at a part of the value."""
        return Problem(self.file, self.line(path), format_path(path), message)

    def line(self, path: KeyPath) -> int:
        """Returns the line of a part, or of the nearest one around it that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def written(self, path: KeyPath) -> KeyPath:
        """Returns the path to a part as the file writes it: a key such as `mix` can stand in place
        of the key around it, or beside it."""
        found: list[Any] = []
        above: Any = None
        value = self.value
        for number, step in enumerate(path):
            if _has(value, step):
                found.append(step)
                above, value = value, value[step]
            elif _has(above, step):
                found[-1], value = step, above[step]
            elif not any(_has(value, later) for later in path[number + 1 :]):
                return (*found, *path[number:])
        return tuple(found)

    def location(self, path: KeyPath) -> str:
        """Returns `file:line: a.b[0].c`, with the line of the nearest part that exists."""
        place = f"{self.file}:{self.line(path)}"
        return f"{place}: {format_path(path)}" if path else place

    def add(self, line: int, message: str, path: KeyPath = ()) -> None:
        """Adds a problem of the YAML itself."""
        self.problems.append(Problem(self.file, line, format_path(path), message))

    def construct(self, loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath) -> Any:
        """Returns the value of a node; notes its lines and problems."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.construct(loader, item, (*path, index)) for index, item in items]
        if not isinstance(node, yaml.MappingNode):
            try:
                return loader.construct_object(node, deep=True)
            except ValueError as error:  # for example, an impossible date
                return self.add(line, str(error), path)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = loader.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            inner = (*path, key)
            if not isinstance(key, str):
                self.add(line, f"the key {reprlib.repr(key)} is not text", path)
            elif key in result:
                self.add(line, f"given twice, first on line {self.lines[inner]}", inner)
            else:
                self.lines[inner] = line
                result[key] = self.construct(loader, value_node, inner)
        return result


def _has(value: Any, step: Any) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def read(file: str) -> Document:
    """Reads a YAML file. Raises `ConfigError` with file and line of each problem."""
    doc = parse(file)
    if doc.problems:
        raise ConfigError("\n".join(map(str, doc.problems)), file=file)
    return doc


def parse(file: str) -> Document:
    """Reads a YAML file. The document lists its mistakes, even if it is not YAML."""
    doc = Document(file)
    try:
        loader = yaml.SafeLoader(Path(file).read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            doc.value = doc.construct(loader, node, ()) if node else None
        finally:
            loader.dispose()
    except OSError as error:
        doc.readable = False
        doc.add(1, f"the file cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        doc.add(line, "the file is not UTF-8 text")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        doc.add(mark.line + 1 if mark else 1, f"not valid YAML: {problem}")
    except RecursionError:
        doc.add(1, "nested too deeply, or contains itself")
    return doc


def flow(value: Any) -> str:
    """Returns a value as YAML in one line."""
    style = '"' if isinstance(value, str) and "\n" in value else None
    text = yaml.safe_dump(
        value,
        default_style=style,
        default_flow_style=True,
        sort_keys=False,
        width=1 << 20,
        allow_unicode=True,
    )
    return text.removesuffix("...\n").strip()
