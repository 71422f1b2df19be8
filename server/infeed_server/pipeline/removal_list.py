"""The list of samples to remove: what its lines name, and the line for a file."""

from __future__ import annotations

import json
from contextlib import suppress

from infeed.shared.errors import ConfigError, SourceError
from infeed_server.storage.files import read_bytes


def read_list(
    listed: str | tuple[int | str, ...],
) -> tuple[tuple[int | str, ...], frozenset[str]]:
    """Returns the ids and names in a list or in the lines of a file, without the comments after
    ` # `; and the names that the lines have if these are no comments. Raises `ConfigError`."""
    if not isinstance(listed, str):
        return listed, frozenset()
    try:
        lines = read_bytes(listed).decode("utf-8-sig").splitlines()
    except (SourceError, UnicodeDecodeError) as error:
        problem = error.message if isinstance(error, SourceError) else f"{listed} is not UTF-8 text"
        raise ConfigError(problem, at=("remove",)) from error
    names: list[int | str] = []
    others: set[str] = set()
    for line in lines:
        name, texts = _read_line(line.strip())
        names += [] if name == "" else [name]
        others.update(texts)
    return tuple(names), frozenset(others)


def list_line(name: str) -> str:
    """Returns the line of a list that names a file, in quotes if it would mean something else."""
    is_plain = name.isprintable() and _read_line(name) == (name, [])
    return name if is_plain else json.dumps(name)


def _read_line(line: str) -> tuple[int | str, list[str]]:
    """Returns the id or name in a line, and the names that it has if its comments are none."""
    if line.startswith('"'):
        with suppress(ValueError):
            name, end = json.JSONDecoder().raw_decode(line)
            if f"{line[end:].strip()} ".startswith((" ", "# ")):
                return str(name), []
    parts = f" {line} ".split(" # ")
    plain = parts[0].strip()
    texts = [" # ".join(parts[:end]).strip() for end in range(2, len(parts) + 1)]
    return int(plain) if plain.isdecimal() else plain, texts
