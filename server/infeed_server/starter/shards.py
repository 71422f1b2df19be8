"""Groups of files that are shards of one data set."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from infeed_server.starter.draft import pipeline_name, relative
from infeed_server.storage.files import INDEX_SUFFIX

_SHARD = re.compile(
    r"^(?P<prefix>.*?)[-_.]?(?P<number>\d+)(?P<rest>(-?of-?\d+)?(?P<suffix>\.[^.]*[a-zA-Z][^.]*)?)$"
)
"""A name with the number of a shard: `train-00000-of-00010.tfrecord`, `data_3.tfrecord`."""


def shard_groups(files: Sequence[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Yields the groups, each with the name of its pipeline."""
    groups: dict[tuple[str, str, str], list[Path]] = {}
    for file in sorted(files):
        match = _SHARD.match(file.name)
        parts = (match["prefix"], match["suffix"] or "") if match else (file.stem, file.suffix)
        groups.setdefault((str(file.parent), *parts), []).append(file)
    for (_, prefix, _), group in groups.items():
        has_name = re.search(r"[a-zA-Z]", prefix) is not None
        yield pipeline_name(prefix if has_name else group[0].absolute().parent.name), group


def shard_pattern(files: Sequence[Path], target: Path, given: str = "") -> str | list[str]:
    """Returns a glob that matches these files and no others, the given one if it does; or a list.
    `target` is the folder from which paths are relative."""
    first, patterns = files[0], [given]
    if match := _SHARD.match(first.name):
        begin = glob.escape(f"{first.parent}/{first.name[: match.start('number')]}")
        patterns += [f"{begin}{digits}{glob.escape(match['rest'])}" for digits in ("*", "[0-9]*")]
    for pattern in patterns:
        if len(files) > 1 and matching_files(pattern) == sorted(files):
            return relative(pattern, target)
    paths = [relative(file, target) for file in files]
    return paths if len(paths) > 1 else paths[0]


def matching_files(pattern: str) -> list[Path]:
    """Returns the files that a glob matches, sorted, without indexes."""
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - also absolute patterns
    return [Path(path) for path in found if Path(path).is_file() and INDEX_SUFFIX not in path]
