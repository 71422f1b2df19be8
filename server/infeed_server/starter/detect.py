"""The kinds of data at a path, and the starter for one of them."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.sources.arrow.saved_dataset import SPLITS, STATE
from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.sources.tfrecord.framing import HEADER_BYTES, masked_crc
from infeed_server.starter.columns import COLUMN_DRAFTS
from infeed_server.starter.draft import Starter
from infeed_server.starter.images import image_drafts
from infeed_server.starter.listing import (
    READ_THREADS,
    Files,
    UnclearError,
    data_sets,
    files_below,
    pipeline_name,
    read_head,
    shard_pattern,
    unused,
)
from infeed_server.starter.readings import common_folder
from infeed_server.starter.records import RECORD_DRAFTS
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

_IMAGES, _TABLE = "images", "csv"
_DRAFTS = {**COLUMN_DRAFTS, **RECORD_DRAFTS}
_ENDINGS = {".tar": "webdataset", ".csv": _TABLE, ".npz": "arrays", ".npy": "arrays"}
_ENDINGS |= {".parquet": "parquet", ".pq": "parquet"} | dict.fromkeys(EXTENSIONS, _IMAGES)
"""Ending → source of such files, or a CSV; what other files are is in their first bytes."""
_HEADS = {b"MMIDIDX\0": "tokens", bytes.fromhex("83af70d10d884a3f"): "arrayrecord"}
_DESCRIBED: Mapping[str, tuple[str, set[str]]] = {
    "index.json": ("mds", {"version", "shards"}),
    "dataset_info.json": ("tfds", {"name", "splits"}),
    STATE: ("huggingface", {"_data_files"}),
    SPLITS: ("huggingface", {"splits"}),
}
"""Name of a file that describes its folder → source of the folder, and keys that it has."""


def starter_for(
    path: str,
    target: Path,
    parts: str | None = None,
    labels: str | None = None,
    source: str | None = None,
) -> Starter:
    """Looks at data and returns a starter for it; `target` is the folder of the file to be written.
    The options are the ones of `init`. Raises `SourceError` for data of an unknown kind or that no
    pipeline can serve, `UnclearError` where an option must be chosen, and `MissingExtraError` for
    Parquet, Arrow and ArrayRecords without their libraries."""
    try:
        return _starter(path, target, parts, labels, source)
    except InfeedError as error:
        name_pointer(error)
        raise


def _starter(
    path: str, target: Path, parts: str | None, labels: str | None, source: str | None
) -> Starter:
    folder = absolute_path(path).rstrip("/") if is_folder(path) else ""
    files = files_below(folder) if folder else expand_globs([path])
    found = _by_source(files, source)
    tables = found.pop(_TABLE, [])
    if tables and (source == _TABLE or not found):
        files = files_below(posixpath.dirname(tables[0])) if not folder else files
        images = [file for file in files if file.lower().endswith(EXTENSIONS)]
        if images and source is None:  # a CSV of labels, whose images are beside it
            found, labels, folder = {_IMAGES: images}, labels or tables[0], common_folder(images)
        else:
            found = {_TABLE: tables}
    source = _chosen(found, source or (_IMAGES if labels or parts else None), path)
    if source == _IMAGES and folder:
        # Beside other data, folders without images are no classes.
        inner = common_folder(found[source]) if len(found) > 1 else folder
        return Starter.of(image_drafts(inner, files, target, parts, labels))
    if labels or parts:
        raise SourceError(f"--labels, --parts: {path} is no folder of images; leave them out")
    if source not in _DRAFTS:
        raise _unknown(files)
    if is_remote(path) and source in ("arrayrecord", "huggingface"):
        raise SourceError(
            f"{path}: the source {source} reads local files only; copy these to this host, or a "
            "pack of them to the store, see docs/data.md, When to pack"
        )
    sets = _sets(source, found[source], target, "" if folder else path)
    drafts = [draft for data in sets for draft in _DRAFTS[source](data)]
    drafts[0].notes += [f"{data.name}: {text}" for data in sets for text in data.missing]
    if folder:
        used = {*found[source]}
        others = {file for file in files if used.isdisjoint((file, posixpath.dirname(file)))}
        drafts[0].notes += unused(others)
    for draft in drafts if is_remote(path) and source != "arrays" else ():
        draft.shuffle.setdefault("mode", "window")  # needs fewer requests
    return Starter.of(drafts)


def _by_source(files: Sequence[str], chosen: str | None) -> dict[str, list[str]]:
    """Returns the files, or the folders that describe themselves, by their source."""
    found: dict[str, list[str]] = {}
    described: set[str] = set()
    for file in sorted(files, key=lambda file: file.count("/")):
        folder, name = posixpath.split(file)
        source, keys = _DESCRIBED.get(name, ("", set[str]()))
        # A merged index has the shards of the indexes below it, and a data set its splits.
        is_below = any(f"{folder}/".startswith(f"{other}/") for other in described)
        if source and chosen in (None, source) and not is_below and keys <= _keys(file):
            described.add(folder)
            found.setdefault(source, []).append(folder)
    groups: dict[str, list[str]] = {}
    for file in files:
        if not any(file.startswith(f"{folder}/") for folder in described):
            kind = _ENDINGS.get(posixpath.splitext(file)[1].lower())
            groups.setdefault(kind or shard_pattern(file), []).append(file)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for key, kind in zip(groups, pool.map(_kind, groups, groups.values()), strict=True):
            if kind:
                found.setdefault(kind, []).extend(groups[key])
    tars = {tar.removesuffix(".tar") for tar in found.get("webdataset", [])}
    if chosen is None and tars.issuperset(
        posixpath.splitext(table)[0] for table in found.get("parquet", [])
    ):
        found.pop("parquet", None)  # of img2dataset, which describe the tars
    return found


def _keys(file: str) -> set[str]:
    with suppress(SourceError, ValueError, TypeError):
        return {*json.loads(read_bytes(file))}
    return set()


def _kind(group: str, files: Sequence[str]) -> str:
    """Returns the source of a group of files, by the first that is not empty."""
    if group in _ENDINGS.values():
        return group
    head = b""
    with suppress(OSError):
        head = next(filter(None, map(read_head, files)), b"")
    if len(head) >= HEADER_BYTES and masked_crc(head[:8]) == int.from_bytes(head[8:12], "little"):
        return "tfrecord"
    return next((source for magic, source in _HEADS.items() if head.startswith(magic)), "")


def _sets(source: str, found: Sequence[str], target: Path, given: str) -> list[Files]:
    """Returns the data sets in what was found for a source."""
    if source not in ("arrays", "huggingface", "mds", "tfds"):
        return data_sets(found, target, given)
    alone = [path for path in found if not path.lower().endswith(".npy")]
    together = [path for path in found if path.lower().endswith(".npy")]
    name = posixpath.splitext(together[0])[0] if together else ""
    name = posixpath.dirname(name) if len(together) > 1 else name
    sets = [(path.removesuffix(".npz"), [path]) for path in alone]
    sets += [(name, together)] if together else []
    return [Files(pipeline_name(posixpath.basename(name)), group, target) for name, group in sets]


def _chosen(found: Mapping[str, Sequence[str]], source: str | None, path: str) -> str:
    """Returns the source of the data, one of several. Raises `SourceError` and `UnclearError`."""
    if source is None and len(found) < 2:
        return next(iter(found), "")
    if source is None:
        choices = [
            ({"source": name}, f"{len(files)}: {abbreviate([*map(posixpath.basename, files)], 3)}")
            for name, files in found.items()
        ]
        raise UnclearError(f"{path} has data for several sources; choose one", choices)
    if source not in found:
        known = ", ".join(found) or "nothing that is known"
        raise SourceError(f"--source {source}: there is no such data at {path}; it has: {known}")
    return source


def _unknown(files: Sequence[str]) -> SourceError:
    """Returns the error for files that no starter knows."""
    first = files[0]
    with reading(first):
        head = read_head(first)
    problem = f"{first} has an unknown kind of data; see docs/data.md, Data that init knows"
    if first.lower().endswith(EXTENSIONS):
        problem = f"{first} is one image; give its folder: {posixpath.dirname(first)}"
    elif not head:
        problem = f"{first} is empty: it has no bytes; write it again"
    elif head.startswith(b"\x1f\x8b"):
        problem = (
            f"{first} is compressed with GZIP, which has no random access; write it without "
            "compression, or unpack it: gunzip < OLD > NEW"
        )
    return SourceError(problem, file=first)
