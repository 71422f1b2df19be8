"""Groups of files that are shards of one data set."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from infeed_server.sources.files import INDEX_SUFFIX
from infeed_server.starter.draft import Place, pipeline_name

_SHARD = re.compile(r"^(?P<prefix>.*?)[-_.]?\d+(?:-?of-?\d+)?(?P<suffix>\.[^.]*[a-zA-Z][^.]*)?$")
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


def shard_pattern(files: Sequence[Path], place: Place, given: str = "") -> str | list[str]:
    """Returns a glob that matches these files and no others, if possible that which was given; or a
    list of them."""
    if len(files) == 1:
        return place.path(files[0])
    names = [file.name for file in files]
    begin = _common(names)
    end = _common([name[::-1] for name in names])[::-1]
    start = f"{glob.escape(str(files[0].parent))}/{glob.escape(begin)}"
    for pattern in (given, *(f"{start}{each}{glob.escape(end)}" for each in ("*", "[0-9]*"))):
        if set(matching_files(pattern)) == set(files):
            return place.path(pattern)
    return [place.path(file) for file in files]


def matching_files(pattern: str) -> list[Path]:
    """Returns the files that a glob matches, sorted, without indexes."""
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - also absolute patterns
    return [Path(path) for path in found if Path(path).is_file() and INDEX_SUFFIX not in path]


def _common(names: Sequence[str]) -> str:
    """Returns the common beginning of names, without the digits at its end."""
    low, high = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[:length].rstrip("0123456789")
