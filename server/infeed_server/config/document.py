"""A YAML document that remembers the line of every key, so that errors can name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from infeed.errors import ConfigError
from infeed_server.config.model import Path, dotted


@dataclass(frozen=True)
class Document:
    """The value of a YAML file, and where in the file each part of it stands."""

    file: str
    value: Any
    lines: dict[Path, int] = field(repr=False)

    def where(self, path: Path) -> str:
        """`file:line: a.b[0].c` for the nearest part of the path that exists."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known, 1)
        return f"{self.file}:{line}: {dotted(path)}" if path else f"{self.file}:{line}"


def read(file: str) -> Document:
    """Reads a YAML file. Raises `ConfigError` that names file and line."""
    try:
        text = FilePath(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", file=file) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text", file=file) from None
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Path, int] = {}
            value = _value(loader, node, (), lines, file) if node else None
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


def _value(
    loader: yaml.SafeLoader, node: yaml.Node, path: Path, lines: dict[Path, int], file: str
) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            place = (*path, key)
            if not isinstance(key, str):
                raise ConfigError(f"{file}:{line}: the key {key!r} is not text", file=file)
            if key in result:
                first = lines[place]
                raise ConfigError(
                    f"{file}:{line}: {dotted(place)}: given twice, first in line {first}",
                    file=file,
                )
            lines[place] = line
            result[key] = _value(loader, value_node, place, lines, file)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(loader, item, (*path, number), lines, file)
            for number, item in enumerate(node.value)
        ]
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:  # such as of a date that no calendar has
        where = f"{file}:{node.start_mark.line + 1}: {dotted(path)}"
        raise ConfigError(f"{where}: {error}", file=file) from None
