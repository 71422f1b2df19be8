"""The kinds of data at a path, and the starter for one of them."""

from __future__ import annotations

import glob
import json
import posixpath
from collections import defaultdict
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
from infeed_server.starter.images import image_starter, names_images
from infeed_server.starter.listing import (
    READ_THREADS,
    UnclearError,
    common_folder,
    data_sets,
    read_head,
    shard_pattern,
    unused,
)
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
_ENDINGS |= {".parquet": "parquet", ".pq": "parquet", ".tfrecord": "tfrecord"}
_ENDINGS |= dict.fromkeys(EXTENSIONS, _IMAGES)
"""Ending → source of such files, or a CSV; what other files are is in their first bytes."""
_HEADS = {b"MMIDIDX\0": "tokens", b"\x1f\x8b": "tfrecord"}  # which names the compression
_HEADS[bytes.fromhex("83af70d10d884a3f")] = "arrayrecord"
_DESCRIBED: Mapping[str, tuple[str, set[str]]] = {
    "index.json": ("mds", {"version", "shards"}),
    "dataset_info.json": ("tfds", {"name", "splits"}),
    STATE: ("huggingface", {"_data_files"}),
    SPLITS: ("huggingface", {"splits"}),
}
"""Name of a file that describes its folder → source of the folder, and keys that it has."""


def starter_for(path: str, target: Path, **options: str | None) -> Starter:
    """Looks at data and returns a starter for it; `target` is the folder of the file to be written.
    The options are the ones of `init`. Raises `SourceError` for data of an unknown kind or that no
    pipeline can serve, `UnclearError` where an option must be chosen, and `MissingExtraError` for
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
    files = expand_globs([f"{glob.escape(folder)}/**" if folder else path])
    found = _by_source(files, source)
    if not folder and not source and [*found] == [_TABLE]:
        beside = expand_globs([f"{glob.escape(posixpath.dirname(files[0]))}/**"])
        images = [file for file in beside if file.lower().endswith(EXTENSIONS)]
        if images and names_images(files[0], images):
            files, found, labels = beside, {_IMAGES: images}, labels or files[0]
    if len(found) > 1 and source != _TABLE:
        found.pop(_TABLE, None)  # of labels, or of something else
    source = _chosen(found, source or (_IMAGES if labels or parts else None), path)
    if source == _IMAGES and (folder or labels):
        # Beside other data, folders without images are no classes.
        root = folder if folder and len(found) == 1 else common_folder(found[source])
        return image_starter(root, files, target, parts, labels)
    if labels or parts:
        raise SourceError(f"--labels, --parts: {path} is no folder of images; leave them out")
    if source not in _DRAFTS:
        raise _unknown(files[0])
    if is_remote(path) and source in ("arrayrecord", "huggingface"):
        raise SourceError(
            f"{path}: the source {source} reads local files only; copy these to this host, or a "
            "pack of them to the store, see docs/data.md, When to pack"
        )
    is_apart = source in {"arrays", *(name for name, _ in _DESCRIBED.values())}
    sets = data_sets(found[source], target, "" if folder else path, apart=is_apart)
    drafts = [draft for data in sets for draft in _DRAFTS[source](data)]
    for draft in drafts if is_remote(path) and source != "arrays" else ():
        draft.shuffle.setdefault("mode", "window")  # needs fewer requests
    used = {*found[source]}
    left = [file for file in files if used.isdisjoint((file, posixpath.dirname(file)))]
    return Starter.of(drafts, unused(left, folder) if folder else [])


def _by_source(files: Sequence[str], chosen: str | None) -> dict[str, list[str]]:
    """Returns the files, or the folders that describe themselves, by their source."""
    found: dict[str, list[str]] = defaultdict(list)
    described: list[str] = []
    for file in sorted(files, key=lambda file: file.count("/")):
        folder, name = posixpath.split(file)
        source, keys = _DESCRIBED.get(name, ("", set[str]()))
        # A merged index has the shards of the indexes below it, and a data set its splits.
        is_below = any(f"{folder}/".startswith(f"{other}/") for other in described)
        if source and chosen in (None, source) and not is_below and keys <= _keys(file):
            described.append(folder)
            found[source].append(folder)
    groups: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if not any(file.startswith(f"{folder}/") for folder in described):
            kind = _ENDINGS.get(posixpath.splitext(file)[1].lower())
            groups[kind or shard_pattern(file)].append(file)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for key, kind in zip(groups, pool.map(_kind, groups, groups.values()), strict=True):
            found[kind].extend(groups[key])
    found.pop("", None)
    tars = {tar.removesuffix(".tar") for tar in found.get("webdataset", [])}
    tables = {posixpath.splitext(table)[0] for table in found.get("parquet", [])}
    if chosen is None and tables and tables <= tars:
        del found["parquet"]  # of img2dataset, which describe the tars
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


def _chosen(found: Mapping[str, Sequence[str]], source: str | None, path: str) -> str:
    """Returns the source of the data, one of several. Raises `SourceError` and `UnclearError`."""
    if source is None and len(found) > 1:
        choices = [
            ({"source": name}, f"{len(files)}: {abbreviate([*map(posixpath.basename, files)], 3)}")
            for name, files in found.items()
        ]
        raise UnclearError(f"{path} has data for several sources; choose one", choices)
    if source is not None and source not in found:
        known = ", ".join(found) or "nothing that is known"
        raise SourceError(f"--source {source}: there is no such data at {path}; it has: {known}")
    return source or next(iter(found), "")


def _unknown(file: str) -> SourceError:
    """Returns the error for a file that no starter knows."""
    with reading(file):
        head = read_head(file)
    problem = "has an unknown kind of data; see docs/data.md, Data that init knows"
    problem = problem if head else "is empty: it has no bytes; write it again"
    if file.lower().endswith(EXTENSIONS):
        problem = f"is one image; give its folder: {posixpath.dirname(file)}"
    return SourceError(f"{file} {problem}", file=file)
