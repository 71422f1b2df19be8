"""Groups of files that are shards of one data set."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed_server.starter.draft import pipeline_name, relative
from infeed_server.starter.paths import DataPath, matching_files

_SHARD = re.compile(
    r"^(?P<prefix>.*?)[-_.]?(?P<number>\d+)(?P<rest>(-?of-?\d+)?(?P<suffix>\.[^.]*[a-zA-Z][^.]*)?)$"
)
"""A name with the number of a shard: `train-00000-of-00010.tfrecord`, `data_3.tfrecord`."""


def shard_groups(files: Sequence[DataPath]) -> Iterator[tuple[str, list[DataPath]]]:
    """Yields the groups, each with the name of its pipeline."""
    groups: dict[tuple[str, str, str], list[DataPath]] = {}
    for file in sorted(files):
        match = _SHARD.match(file.name)
        parts = (match["prefix"], match["suffix"] or "") if match else (file.stem, file.suffix)
        groups.setdefault((str(file.parent), *parts), []).append(file)
    for (_, prefix, _), group in groups.items():
        has_name = re.search(r"[a-zA-Z]", prefix) is not None
        yield pipeline_name(prefix if has_name else group[0].absolute().parent.name), group


@dataclass(frozen=True)
class Shards:
    """The files of one data set, or its folder."""

    name: str
    """Of its pipeline."""
    files: Sequence[DataPath]
    target: Path
    """The folder from which paths are relative."""
    given: str = ""
    """The glob that named the files, if one did."""

    @property
    def count(self) -> str:
        return f"{len(self.files)} file{'s' * (len(self.files) > 1)}"

    @property
    def pattern(self) -> str | list[str]:
        """A glob that matches these files and no others, the given one if it does; or a list."""
        first, patterns = self.files[0], [self.given] * bool(self.given)
        if match := _SHARD.match(first.name):
            begin = glob.escape(f"{first.parent}/{first.name[: match.start('number')]}")
            rest = glob.escape(match["rest"])
            patterns += [f"{begin}{digits}{rest}" for digits in ("*", "[0-9]*")]
        for pattern in patterns:
            if len(self.files) > 1 and matching_files(pattern) == sorted(self.files):
                return relative(pattern, self.target)
        paths = [relative(file, self.target) for file in self.files]
        return paths if len(paths) > 1 else paths[0]
