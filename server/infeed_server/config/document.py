"""YAML documents with the line of every key, for error messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infeed.errors import ConfigError
from infeed_server.config.model import KeyPath, format_path


@dataclass(frozen=True)
class Document:
    """The value of a YAML file, and the line of each of its parts."""

    file: str
    value: Any
    lines: dict[KeyPath, int] = field(repr=False)

    def location(self, path: KeyPath) -> str:
        """Returns `file:line: a.b[0].c`, with the line of the nearest part that exists."""
        existing = path
        while existing and existing not in self.lines:
            existing = existing[:-1]
        line = self.lines.get(existing, 1)
        return f"{self.file}:{line}: {format_path(path)}" if path else f"{self.file}:{line}"


def read(file: str) -> Document:
    """Reads a YAML file. Raises `ConfigError` with file and line."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", file=file) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text", file=file) from None
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[KeyPath, int] = {}
            value = _construct(loader, node, (), lines, file) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}", file=file) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}", file=file) from None
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply, or within itself", file=file) from None
    return Document(file, value, lines)


def _construct(
    loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], file: str
) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            key_path = (*path, key)
            if not isinstance(key, str):
                raise ConfigError(f"{file}:{line}: the key {key!r} is not text", file=file)
            if key in result:
                raise ConfigError(
                    f"{file}:{line}: {format_path(key_path)}: given twice, first in line "
                    f"{lines[key_path]}",
                    file=file,
                )
            lines[key_path] = line
            result[key] = _construct(loader, value_node, key_path, lines, file)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [
            _construct(loader, item, (*path, index), lines, file)
            for index, item in enumerate(node.value)
        ]
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:  # for example, an impossible date
        location = f"{file}:{node.start_mark.line + 1}: {format_path(path)}"
        raise ConfigError(f"{location}: {error}", file=file) from None
