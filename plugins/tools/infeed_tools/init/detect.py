"""The kinds of data at a path, and the starter for one of them."""

from __future__ import annotations

import glob
import json
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.storage.files import (
    abbreviate,
    absolute_path,
    expand_globs,
    is_folder,
    is_remote,
    read_bytes,
    reading,
)
from infeed_server.storage.git_lfs import name_pointer
from infeed_tools.init.draft import Starter
from infeed_tools.init.drafter import Drafter, draft_all, drafters, source_of
from infeed_tools.init.images import image_starter, names_images
from infeed_tools.init.listing import (
    READ_THREADS,
    UnclearError,
    common_folder,
    data_sets,
    read_head,
    shard_pattern,
    unused,
)

_IMAGES = "images"

_OF_PACK = ".origins.gz"
"""Ending of the lists that `infeed pack` writes beside its shards."""


def starter_for(path: str, target: Path, **options: str | None) -> Starter:
    """Looks at data and returns a starter for it; `target` is the folder of the file to write, and
    the options are those of `init`. Raises `SourceError` if the kind of data is unknown or no
    pipeline can serve it, `UnclearError` if an option must be chosen, and `MissingExtraError` for
    Parquet, Arrow and ArrayRecords without their libraries."""
    try:
        return _starter(path, target, **options)
    except InfeedError as error:
        name_pointer(error)
        raise


def _starter(
    path: str,
    target: Path,
    parts: str | None = None,
    labels: str | None = None,
    source: str | None = None,
) -> Starter:
    folder = absolute_path(path).rstrip("/") if is_folder(path) else ""
    listed = expand_globs([f"{glob.escape(folder)}/**" if folder else path])
    files = [file for file in listed if not (folder and file.endswith(_OF_PACK))]
    known = drafters()
    tables = {kind for kind, drafter in known.items() if drafter.is_table}
    found = _by_source(files, source, known)
    if not folder and not source and len(found) == 1 and tables >= found.keys():
        beside = expand_globs([f"{glob.escape(posixpath.dirname(files[0]))}/**"])
        images = [file for file in beside if file.lower().endswith(EXTENSIONS)]
        if images and names_images(files[0], images):
            files, found, labels = beside, {_IMAGES: images}, labels or files[0]
    if not tables >= found.keys():
        for table in tables - {source}:
            found.pop(table, None)  # they describe the other data, or something else
    source = _chosen(found, source or (_IMAGES if labels or parts else None), path)
    if source == _IMAGES and (folder or labels):
        # If there is other data, folders without images are not classes.
        root = folder if folder and len(found) == 1 else common_folder(found[source])
        return image_starter(root, files, target, parts, labels)
    if labels or parts:
        raise SourceError(f"--labels, --parts: {path} is not a folder of images; omit them")
    if source not in known:
        raise _unknown(files[0])
    drafter = known[source]
    if is_remote(path) and drafter.is_local:
        raise SourceError(
            f"{path}: the source {source} reads only local files; copy them to this host, or pack "
            "them into the store (docs/data.md, When to pack)"
        )
    is_apart = drafter.is_whole or bool(drafter.described_by)
    sets = data_sets(found[source], target, "" if folder else path, apart=is_apart)
    drafts = draft_all(source, drafter, sets)
    for draft in drafts if is_remote(path) and not drafter.is_whole else ():
        draft.shuffle.setdefault("mode", "window")  # which needs fewer requests
    used = {*found[source]}
    left = [file for file in files if used.isdisjoint((file, posixpath.dirname(file)))]
    return Starter.of(drafts, unused(left, folder) if folder else [])


def _by_source(
    files: Sequence[str], chosen: str | None, known: Mapping[str, Drafter]
) -> dict[str, list[str]]:
    """Returns the files, or the folders with a file that describes them, by source."""
    found: dict[str, list[str]] = defaultdict(list)
    describing = [
        (name, kind, keys)
        for kind, drafter in known.items()
        for name, keys in drafter.described_by.items()
        if chosen in (None, kind)
    ]
    described: list[str] = []
    for file in sorted(files, key=lambda file: file.count("/")):
        folder, name = posixpath.split(file)
        # A merged index lists the shards of the indexes below it, and a data set its splits.
        if not any(f"{folder}/".startswith(f"{other}/") for other in described):
            kinds = [k for other, k, keys in describing if other == name and keys <= _keys(file)]
            described += [folder] * bool(kinds)
            for kind in kinds:
                found[kind].append(folder)
    endings = {ending: kind for kind, one in known.items() for ending in one.endings}
    endings |= dict.fromkeys(EXTENSIONS, _IMAGES)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in files:
        if not any(file.startswith(f"{folder}/") for folder in described):
            kind = endings.get(posixpath.splitext(file)[1].lower(), "")
            groups[kind, "" if kind else shard_pattern(file)].append(file)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        unclear = [group for (kind, _), group in groups.items() if not kind]
        kinds_of_unclear = iter(pool.map(partial(_kind, known), unclear))
        for (kind, _), group in groups.items():
            found[kind or next(kinds_of_unclear)].extend(group)
    found.pop("", None)
    for kind in [kind for kind in found if chosen is None and kind in known]:
        if known[kind].has_twins:
            _leave_out_twins(found, kind)
    return found


def _leave_out_twins(found: dict[str, list[str]], kind: str) -> None:
    stems = {name: {posixpath.splitext(file)[0] for file in files} for name, files in found.items()}
    for other in found.keys() - {kind}:
        if stems[other] <= stems[kind]:
            del found[other]


def _keys(file: str) -> set[str]:
    with suppress(SourceError, ValueError, TypeError):
        return {*json.loads(read_bytes(file))}
    return set()


def _kind(known: Mapping[str, Drafter], files: Sequence[str]) -> str:
    """Returns the source of a group of files, judged by the first that is not empty."""
    head = b""
    with suppress(OSError):
        head = next(filter(None, map(read_head, files)), b"")
    return source_of(known, head)


def _chosen(found: Mapping[str, Sequence[str]], source: str | None, path: str) -> str:
    """Returns the chosen or only source. Raises `SourceError` and `UnclearError`."""
    if source is None and len(found) > 1:
        choices = [
            ({"source": name}, f"{len(files)}: {abbreviate([*map(posixpath.basename, files)], 3)}")
            for name, files in found.items()
        ]
        raise UnclearError(f"{path} has data for several sources; choose one", choices)
    if source is not None and source not in found:
        known = ", ".join(found) or "nothing known"
        raise SourceError(f"--source {source}: {path} has no such data; it has: {known}")
    return source or next(iter(found), "")


def _unknown(file: str) -> SourceError:
    """Returns the error for a file that no drafter knows."""
    with reading(file):
        head = read_head(file)
    problem = "holds an unknown kind of data; see docs/data.md, Data that init knows"
    problem = problem if head else "is empty: it has no bytes; write it again"
    if file.lower().endswith(EXTENSIONS):
        problem = f"is one image; give its folder: {posixpath.dirname(file)}"
    return SourceError(f"{file} {problem}", file=file)
