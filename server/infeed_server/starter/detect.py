"""The kinds of data at a path, and the starter for one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.arrow.saved_dataset import SPLITS, STATE
from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.starter.arrays import array_drafts
from infeed_server.starter.draft import Draft, Starter, UnclearError, pipeline_name
from infeed_server.starter.images import common_folder, csv_drafts, image_drafts
from infeed_server.starter.paths import (
    READ_THREADS,
    DataPath,
    data_path,
    files_below,
    matching_files,
    read_head,
)
from infeed_server.starter.prepared import mds_drafts, tfds_drafts
from infeed_server.starter.records import record_drafts, source_of
from infeed_server.starter.shards import Shards, shard_groups
from infeed_server.starter.tables import parquet_drafts, saved_drafts
from infeed_server.starter.tars import tar_drafts
from infeed_server.starter.token_files import token_drafts
from infeed_server.storage.files import abbreviate, absolute_path, is_folder, is_remote, reading

_GZIP_MAGIC = b"\x1f\x8b"

_IMAGES, _CSV = "images", "csv"

_ENDINGS = {".tar": "webdataset", ".idx": "tokens", ".csv": _CSV}
_ENDINGS |= dict.fromkeys((".npz", ".npy"), "arrays") | dict.fromkeys(EXTENSIONS, _IMAGES)
_ENDINGS |= dict.fromkeys((".parquet", ".pq"), "parquet")
"""Ending → source of such files, or a CSV; what other files are is in their first bytes."""

_DESCRIBED = {"index.json": "mds", "dataset_info.json": "tfds"}
_DESCRIBED |= dict.fromkeys((STATE, SPLITS), "huggingface")
"""Name of a file that describes its folder → source of the folder."""

_DRAFTS: Mapping[str, Callable[[Shards], Iterator[Draft]]] = {
    "arrays": array_drafts,
    "arrayrecord": record_drafts,
    "huggingface": saved_drafts,
    "mds": mds_drafts,
    "parquet": parquet_drafts,
    "tfds": tfds_drafts,
    "tfrecord": record_drafts,
    "tokens": token_drafts,
    "webdataset": tar_drafts,
}


def starter_for(
    path: str, target: Path, labels: str | None = None, source: str | None = None
) -> Starter:
    """Looks at data and returns a starter for it; `target` is the folder of the file to be written.
    `labels` and `source` are the values of these options. Raises `SourceError` for data of an
    unknown kind, and for what no pipeline can serve, `UnclearError` where an option must be chosen,
    and `MissingExtraError` for Parquet, Arrow and ArrayRecords without their libraries."""
    folder = data_path(absolute_path(path)) if is_folder(path) else None
    files = files_below(folder) if folder else matching_files(path)
    found = _by_source(files, source)
    tables = found.pop(_CSV, [])
    if tables and not found:
        return Starter(csv_drafts(tables[0], target, labels))
    if labels is not None and (_IMAGES not in found or source not in (None, _IMAGES)):
        raise SourceError(
            f"--labels: {files[0]} is no folder of images and no CSV; leave --labels out",
            file=files[0],
        )
    source = _chosen(found, source or (labels and _IMAGES), path)
    if source == _IMAGES and folder:
        # Beside other data, folders without images are no classes.
        root = common_folder(found[source]) if len(found) > 1 else folder
        return Starter(image_drafts(root, files, target, labels))
    if source not in _DRAFTS:
        raise _unknown(files)
    if is_remote(path) and source == "arrayrecord":
        raise SourceError(
            f"{path}: the source {source} reads local files only; copy these to this host, or a "
            "pack of them to the store, see docs/data.md, When to pack",
            file=path,
        )
    sets = (Shards(*of, target, "" if folder else path) for of in _sets(source, found[source]))
    drafts = [draft for shards in sets for draft in _DRAFTS[source](shards)]
    for draft in drafts if is_remote(path) and source != "arrays" else ():
        draft.shuffle_in_blocks()
    return Starter(drafts)


def _by_source(files: Sequence[DataPath], chosen: str | None) -> dict[str, list[DataPath]]:
    """Returns the files, or the folders that describe themselves, by their source."""
    found: dict[str, list[DataPath]] = {}
    described = {file.parent: _DESCRIBED[file.name] for file in files if file.name in _DESCRIBED}
    for folder, source in described.items():
        # A merged index has the shards of the indexes below it, and a data set its splits.
        if described.keys().isdisjoint(folder.parents):
            is_saved = source == "tfds" and (folder / STATE).is_file()
            found.setdefault("huggingface" if is_saved else source, []).append(folder)
    others = [f for f in files if described.keys().isdisjoint(f.parents)] if described else files
    for file in others:
        found.setdefault(_ENDINGS.get(file.suffix.lower(), ""), []).append(file)
    groups = [group for _, group in shard_groups(found.pop("", []))]
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for group, source in zip(groups, pool.map(_source_of_shards, groups), strict=True):
            if source:
                found.setdefault(source, []).extend(group)
    tars = {tar.with_suffix("") for tar in found.get("webdataset", [])}
    if chosen != "parquet" and tars.issuperset(
        table.with_suffix("") for table in found.get("parquet", [])
    ):
        found.pop("parquet", None)  # of img2dataset, which describe the tars
    return found


def _sets(source: str, found: Sequence[DataPath]) -> Iterator[tuple[str, Sequence[DataPath]]]:
    """Returns the data sets in what was found for a source, each with a name."""
    is_set = source in _DESCRIBED.values()
    if alone := [path for path in found if is_set or path.suffix.lower() == ".npz"]:
        return ((pipeline_name(path.name.removesuffix(".npz")), [path]) for path in alone)
    if source != "arrays" or len(found) == 1:
        return shard_groups(found)
    return iter([(pipeline_name(found[0].absolute().parent.name), found)])


def _source_of_shards(group: Sequence[DataPath]) -> str:
    """Returns the source of files, by the first that is not empty."""
    with suppress(OSError):
        return source_of(next(filter(None, map(read_head, group)), b""))
    return ""


def _chosen(found: Mapping[str, Sequence[DataPath]], source: str | None, path: str) -> str:
    """Returns the source of the data, one of several. Raises `SourceError` and `UnclearError`."""
    if source is None and len(found) < 2:
        return next(iter(found), "")
    if source is None:
        choices = [
            (name, f"{len(files)}: {abbreviate([f.name for f in files], 3)}")
            for name, files in found.items()
        ]
        raise UnclearError(f"{path} has data for several sources; choose one", "source", choices)
    if source not in found:
        known = ", ".join(found) or "nothing that is known"
        raise SourceError(f"--source {source}: there is no such data at {path}; it has: {known}")
    return source


def _unknown(files: Sequence[DataPath]) -> SourceError:
    """Returns the error for files that no starter knows."""
    first = files[0]
    with reading(str(first)):
        head = read_head(first)
    problem = (
        f"unknown kind of data: {abbreviate([file.name for file in files], 3)}; known: folders of "
        f"{', '.join(EXTENSIONS)}, TFRecords and tars (not compressed), ArrayRecords, MDS, TFDS, "
        "Parquet, folders of save_to_disk, Megatron's .idx, .npz, .npy, a CSV of labels"
    )
    if first.suffix.lower() in EXTENSIONS:
        problem = f"{first} is one image; give its folder: {first.parent}"
    elif not head:
        problem = f"{first} is empty: it has no bytes; write it again"
    elif head.startswith(_GZIP_MAGIC):
        problem = (
            f"{first} is compressed with GZIP, which has no random access; write it without "
            "compression, or unpack it: gunzip < OLD > NEW"
        )
    return SourceError(problem, file=first)
