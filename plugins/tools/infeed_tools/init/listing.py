"""Files at a path, local or in an object store, and their division into data sets."""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.shards import list_shards, warn_of_missing
from infeed_server.storage.files import abbreviate, expand_globs, is_remote
from infeed_server.storage.handles import FileHandle

READ_THREADS = 16
"""Threads that read the beginnings of files, enough to hide a store's latency."""

_VARIES = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?<![a-z0-9])(?=[a-f]*[0-9])[0-9a-f]{6,}(?![a-z0-9])|[0-9]+)",
    re.IGNORECASE,
)
"""The parts of shards' names that differ: a UUID, a hash or a number."""
_PARTITION = re.compile(r"(?<==)([^/=]+)(?=/|$)")
"""The part of partitions' folders that differs: the value of `key=value`."""
_ROLE = re.compile(r"(train|test|val|dev|eval)(?:id|uation|elopment|val|test|ing|ation|set)*")


class UnclearError(SourceError):
    """An option must be chosen: `choices` are options of `init`, each with a description."""

    def __init__(self, message: str, choices: Sequence[tuple[dict[str, str], str]]) -> None:
        super().__init__(message)
        self.choices = choices


@dataclass(frozen=True)
class Files:
    """The files of a data set, or its folder; paths are written relative to `target`."""

    name: str
    files: Sequence[str]
    target: Path
    given: str = ""
    """The glob that the user gave, if any."""

    @property
    def pattern(self) -> str | list[str]:
        """A glob that matches exactly these files, preferably the given one, or a list of them.
        Raises `SourceError` for shards of several exports."""
        first = self.files[0]
        if len(self.files) == 1:
            if "-of-" in posixpath.basename(first):
                warn_of_missing(list_shards([first]))
            return relative(first, self.target)
        for pattern in (self.given, shard_pattern(first), shard_pattern(first, "[0-9]*")):
            if pattern and expand_globs([pattern]) == sorted(self.files):
                warn_of_missing(list_shards([pattern]))
                return relative(pattern, self.target)
        return [relative(file, self.target) for file in self.files]


def data_sets(files: Sequence[str], target: Path, given: str, *, apart: bool) -> list[Files]:
    """Returns the data sets in files: all files of a given glob, or else those whose names differ
    only in numbers. With `apart`, each file is a data set, except `.npy`, which form one."""
    groups: dict[str, list[str]] = {}
    for file in sorted(files):
        is_npy = file.lower().endswith(".npy")
        key = "" if is_npy else file if apart else given or shard_pattern(file)
        groups.setdefault(key, []).append(file)
    names = [_name(group) for group in groups.values()]
    return [
        Files(_name(group, names.count(name) > 1), group, target, given)
        for name, group in zip(names, groups.values(), strict=True)
    ]


def _name(files: Sequence[str], of_folder: bool = False) -> str:
    """Returns the name of a data set: the part before a shard's number, or its folder."""
    folder, name = posixpath.split(re.sub(r"/[^/]*=[^/]*(?=/)", "", files[0]))
    prefix = _VARIES.split(name)[0] if len(files) > 1 else posixpath.splitext(name)[0]
    prefix = "" if len(files) > 1 and name.endswith(".npy") else prefix
    has_letter = bool(re.search(r"[a-zA-Z]", prefix))
    parts = [posixpath.basename(folder)] * (of_folder or not has_letter) + [prefix] * has_letter
    return pipeline_name("-".join(parts))


def shard_pattern(file: str, digits: str = "*") -> str:
    """Returns a glob for a file and its data set's other shards."""
    folder, name = posixpath.split(file)
    return f"{_star(_PARTITION, folder, '*')}/{_star(_VARIES, name, digits)}"


def _star(varies: re.Pattern[str], text: str, star: str) -> str:
    parts = enumerate(varies.split(text))
    return "".join(star if number % 2 else glob.escape(part) for number, part in parts)


def common_folder(paths: Sequence[str]) -> str:
    """Returns the deepest folder above all files."""
    parts = [path.split("/")[:-1] for path in paths]
    return "/".join(os.path.commonprefix(parts))  # noqa: RUF071 - they are lists


def unused(files: Iterable[str], folder: str) -> list[str]:
    """Returns a note for each ending of the files that no pipeline serves."""
    named: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        ending = posixpath.splitext(file)[1] or posixpath.basename(file)
        named[ending].append(file.removeprefix(f"{folder}/"))
    return [f"not used: {len(n)} {ending}: {abbreviate(n)}" for ending, n in named.items()]


def read_head(path: str, size: int = 16) -> bytes:
    """Returns the first bytes of a file. Raises `OSError`."""
    with FileHandle(path) as handle:
        return handle.read(0, size)


def relative(path: str, folder: Path) -> str:
    """Returns a path relative to `folder`, or absolute if it is remote or far away."""
    if is_remote(path):
        return path
    absolute = os.path.abspath(path)  # noqa: PTH100 - links are kept
    below = os.path.relpath(absolute, folder.absolute())
    return absolute if below.startswith("../../..") else below


def pipeline_name(text: str) -> str:
    """Returns the text as a name of letters, digits and dashes."""
    return re.sub(r"[^\w]+", "-", text).strip("-_") or "data"


def role(name: str) -> str:
    """Returns the part in a name, such as `test` in `seg_test1` or `Testing`; empty without one."""
    found = [match for word in words(name) if (match := _ROLE.fullmatch(word))]
    return found[-1][1] if found else ""


def words(name: str) -> list[str]:
    """Returns the words in a name: `class` and `id` in `ClassId`."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def spread(count: int, most: int = 64) -> list[int]:
    """Returns at most `count` indices, evenly spread from the first to the last."""
    most = min(count, most)
    return [number * (count - 1) // max(most - 1, 1) for number in range(most)]
