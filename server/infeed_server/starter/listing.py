"""Files at a path, on local disks and in object stores, and which of them are one data set."""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.storage.files import abbreviate, expand_globs, is_remote
from infeed_server.storage.handles import FileHandle

READ_THREADS = 16
"""That read the beginnings of files, to hide the latency of a store."""

_VARIES = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?<!of-)(?<![a-z0-9])(?=[a-f]*[0-9])[0-9a-f]{6,}(?![a-z0-9])"
    r"|(?<!of)(?<!of-)(?<![0-9])[0-9]+)",
    re.IGNORECASE,
)
"""What differs in the names of shards: a UUID, a hash, a number, but not their total."""
_PARTITION = re.compile(r"(?<==)([^/=]+)(?=/|$)")
"""What differs in the folders of partitions: the value of `key=value`."""
_TOTAL = re.compile(r"-?of-?([0-9]+)")
_ROLE = re.compile(r"(train|test|val|dev|eval)(?:id|uation|elopment|val|test|ing|ation|set)*")


class UnclearError(SourceError):
    """An option must be chosen: `choices` are options of `init`, each with a description."""

    def __init__(self, message: str, choices: Sequence[tuple[dict[str, str], str]]) -> None:
        super().__init__(message)
        self.choices = choices


@dataclass(frozen=True)
class Files:
    """The files of one data set, or its folder; paths are written relative to `target`."""

    name: str
    files: Sequence[str]
    target: Path
    given: str = ""
    """The glob that named the files, if one did."""

    @property
    def pattern(self) -> str | list[str]:
        """A glob that matches these files and no others, the given one if it does; or a list."""
        first = self.files[0]
        for pattern in (self.given, shard_pattern(first), shard_pattern(first, "[0-9]*")):
            if len(self.files) > 1 and pattern and expand_globs([pattern]) == sorted(self.files):
                return relative(pattern, self.target)
        paths = [relative(file, self.target) for file in self.files]
        return paths if len(paths) > 1 else paths[0]

    @property
    def missing(self) -> list[str]:
        """A note if there are fewer shards than their names say."""
        total = _TOTAL.search(posixpath.basename(self.files[0]))
        lacking = int(total[1]) - len(self.files) if total else 0
        return [f"{lacking} of {int(total[1])} shards are missing"] if total and lacking > 0 else []


def data_sets(files: Sequence[str], target: Path, given: str) -> list[Files]:
    """Returns the data sets in files: all of a glob that is given, else files whose names differ in
    numbers alone. Raises `UnclearError` for shards of several exports."""
    groups: dict[str, list[str]] = {}
    exports: dict[str, set[str]] = {}
    for file in sorted(files):
        pattern = shard_pattern(file)
        groups.setdefault(pattern, []).append(file)
        exports.setdefault(_TOTAL.sub("", pattern), set()).add(pattern)
    for patterns in exports.values():
        if len(patterns) > 1:
            choices = [
                ({"path": relative(pattern, Path.cwd())}, f"{len(groups[pattern])} files")
                for pattern in sorted(patterns)
            ]
            raise UnclearError("shards of several exports are in one folder; choose one", choices)
    sets = [sorted(files)] if given else [*groups.values()]
    names = [_name(group[0]) for group in sets]
    return [
        Files(_name(group[0], names.count(name) > 1), group, target, given)
        for name, group in zip(names, sets, strict=True)
    ]


def _name(file: str, of_folder: bool = False) -> str:
    """Returns the name of a data set: what is in front of the number of a shard, or its folder."""
    folder, name = posixpath.split(re.sub(r"/[^/]*=[^/]*(?=/)", "", file))
    prefix, *numbers = _VARIES.split(name)
    prefix = prefix if numbers else name.partition(".")[0]
    has_letter = re.search(r"[a-zA-Z]", prefix)
    parts = [posixpath.basename(folder)] * (of_folder or not has_letter) + [prefix] * bool(
        has_letter
    )
    return pipeline_name("-".join(parts))


def shard_pattern(file: str, digits: str = "*") -> str:
    """Returns a glob for a file and the other shards of its data set."""
    folder, name = posixpath.split(file)
    return f"{_star(_PARTITION, folder, '*')}/{_star(_VARIES, name, digits)}"


def _star(varies: re.Pattern[str], text: str, star: str) -> str:
    parts = enumerate(varies.split(text))
    return "".join(star if number % 2 else glob.escape(part) for number, part in parts)


def files_below(folder: str) -> list[str]:
    """Returns all files below a folder, without hidden ones. Raises `SourceError`."""
    return expand_globs([f"{glob.escape(folder)}/**"])


def unused(files: Iterable[str]) -> list[str]:
    """Returns a note about files that no pipeline serves, if there are any."""
    endings = Counter(posixpath.splitext(file)[1] or posixpath.basename(file) for file in files)
    counts = [f"{count} {ending}" for ending, count in endings.most_common()]
    return [f"files that are not used: {abbreviate(counts)}"] if counts else []


def read_head(path: str, size: int = 16) -> bytes:
    """Returns the first bytes of a file. Raises `OSError`."""
    with FileHandle(path) as handle:
        return handle.read(0, size)


def relative(path: str, folder: Path) -> str:
    """Returns a path as a file in `folder` names it: absolute where it is far away or remote."""
    if is_remote(path):
        return path
    absolute = os.path.abspath(path)  # noqa: PTH100 - links are kept
    below = os.path.relpath(absolute, folder.absolute())
    return absolute if below.startswith("../../..") else below


def pipeline_name(text: str) -> str:
    """Returns a name of letters, digits and dashes, made of a path's."""
    return re.sub(r"[^\w]+", "-", text).strip("-_") or "data"


def role(name: str) -> str:
    """Returns the part that a name tells, such as `test` of `seg_test1` or `Testing`, or empty."""
    found = [match for word in words(name) if (match := _ROLE.fullmatch(word))]
    return found[-1][1] if found else ""


def words(name: str) -> list[str]:
    """Returns the words of a name: `class` and `id` of `ClassId`."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def spread(count: int, most: int = 64) -> list[int]:
    """Returns at most so many indices, evenly spread from the first to the last."""
    most = min(count, most)
    return [number * (count - 1) // max(most - 1, 1) for number in range(most)]


def some_files(files: Sequence[str]) -> list[str]:
    """Returns the files of a data set that are looked at: more find more of the fields."""
    return [files[number] for number in spread(len(files), 4)]
