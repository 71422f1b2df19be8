"""Shards of an export: files whose names end with their number and the total, `-00000-of-00003`."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from infeed.shared.errors import SourceError
from infeed_server.storage.files import abbreviate, list_files
from infeed_server.storage.stamp import StoredFile

log = logging.getLogger(__name__)

_SHARD = re.compile(r"(.*?)(\d+)(-of-\d+)(.*)", re.DOTALL)
_HASH = re.compile(r"[0-9a-f]{8,}(-[0-9a-f]{4,})*")
"""A hash of the content or a random part, different in each name."""


def list_shards(patterns: Iterable[str]) -> list[StoredFile]:
    """Lists the files that match patterns, sorted by path. Raises `SourceError` for a pattern
    without a match, or with two exports of the same data: their samples would be served twice."""
    found: dict[str, StoredFile] = {}
    for pattern in patterns:
        files = list_files([pattern])
        exports: dict[tuple[str, str], dict[str, Iterable[str]]] = defaultdict(dict)
        for (prefix, total, suffix), names in _exports(files).items():
            exports[prefix, suffix][total] = names
        for (prefix, suffix), totals in exports.items():
            if len(totals) > 1:
                listed = "; ".join(abbreviate([*names]) for names in totals.values())
                globs = " or ".join(f"{prefix}*{total}{suffix}" for total in totals)
                raise SourceError(
                    f"{pattern!r} matches shards of {len(totals)} exports: {listed}; delete the "
                    f"older ones, or name one export: {globs}",
                    pattern=pattern,
                )
        found.update((file.path, file) for file in files)
    return [found[path] for path in sorted(found)]


def warn_of_missing(files: Sequence[StoredFile]) -> None:
    """Logs which numbers are missing; the user may have chosen a part on purpose."""
    for (prefix, total, suffix), names in _exports(files).items():
        count, numbers = int(total.removeprefix("-of-")), {*names.values()}
        first = int(count in numbers)  # some writers count from 1
        missing = (number for number in range(first, first + count) if number not in numbers)
        if some := ", ".join(map(str, islice(missing, 5))):
            log.warning(
                "%s*%s%s: %d of %d shards are there; missing: %s",
                *(prefix, total, suffix, len(numbers), count, some),
            )


def _exports(files: Sequence[StoredFile]) -> dict[tuple[str, str, str], dict[str, int]]:
    """Groups shards by export, by what precedes the number, the total as written, and what follows;
    returns names and numbers."""
    exports: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for file in files:
        folder, slash, name = file.path.rpartition("/")
        if match := _SHARD.fullmatch(name):
            suffix = _HASH.sub("*", match[4])
            exports[folder + slash + match[1], match[3], suffix][name] = int(match[2])
    return exports
