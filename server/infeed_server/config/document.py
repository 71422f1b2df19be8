"""YAML documents with the line of every key, for error messages."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from infeed.shared.errors import ConfigError
from infeed_server.config.model import KeyPath, format_path


@dataclass(frozen=True)
class Problem:
    """A mistake in a file. `path` leads to the wrong value, empty for the whole file."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


@dataclass(frozen=True)
class Document:
    """The value of a YAML file, the line of each of its parts, and what is wrong in it as YAML."""

    file: str
    value: Any
    lines: dict[KeyPath, int] = field(repr=False)
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

    def location(self, path: KeyPath) -> str:
        """Returns `file:line: a.b[0].c`, with the line of the nearest part that exists."""
        place = f"{self.file}:{self.line(path)}"
        return f"{place}: {format_path(path)}" if path else place


def read(file: str) -> Document:
    """Reads a YAML file. Raises `ConfigError` with file and line of each problem."""
    doc = parse(file)
    if doc.problems:
        raise ConfigError("\n".join(map(str, doc.problems)), file=file)
    return doc


def parse(file: str) -> Document:
    """Reads a YAML file. What is wrong in it is listed in the document, also if it is not YAML."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        doc = _invalid(file, 1, f"the file cannot be read: {error.strerror}")
        return replace(doc, readable=False)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return _invalid(file, line, "the file is not UTF-8 text")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            constructor = _Constructor(loader, Document(file, None, {}))
            value = constructor.construct(node, ()) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return _invalid(file, line, f"not valid YAML: {error.problem}")
    except yaml.YAMLError as error:
        return _invalid(file, 1, f"not valid YAML: {error}")
    except RecursionError:
        return _invalid(file, 1, "nested too deeply, or within itself")
    return replace(constructor.document, value=value)


def _invalid(file: str, line: int, message: str) -> Document:
    return Document(file, None, {}, [Problem(file, line, "", message)])


@dataclass(frozen=True)
class _Constructor:
    """Makes the values of nodes; notes their lines and problems in a document."""

    loader: yaml.SafeLoader
    document: Document

    def construct(self, node: yaml.Node, path: KeyPath) -> Any:
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.construct(item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            return self.loader.construct_object(node, deep=True)
        except ValueError as error:  # for example, an impossible date
            self._add(node, path, str(error))
            return None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                self._add(key_node, path, f"the key {reprlib.repr(key)} is not text")
                continue
            key_path = (*path, key)
            if key in result:
                first = self.document.lines[key_path]
                self._add(key_node, key_path, f"given twice, first in line {first}")
                continue
            self.document.lines[key_path] = key_node.start_mark.line + 1
            result[key] = self.construct(value_node, key_path)
        return result

    def _add(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        line = node.start_mark.line + 1
        self.document.problems.append(Problem(self.document.file, line, format_path(path), message))
