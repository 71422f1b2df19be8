"""The kind of data at a path, and the starter for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.arrow.saved_dataset import SPLITS, STATE, read_splits
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.starter.arrays import arrays_draft
from infeed_server.starter.draft import Draft, Starter, listed
from infeed_server.starter.images import csv_drafts, image_drafts
from infeed_server.starter.records import is_array_record_file, is_record_file, record_drafts
from infeed_server.starter.shards import matching_files
from infeed_server.starter.tables import parquet_drafts, saved_drafts
from infeed_server.starter.tars import tar_drafts
from infeed_server.starter.token_files import token_drafts
from infeed_server.storage.faults import error_text
from infeed_server.storage.files import (
    INDEX_SUFFIX,
    absolute_path,
    describe_nearest_folder,
    is_remote,
)

_GZIP_MAGIC = b"\x1f\x8b"

_PREPARED = ("index.json", "dataset_info.json")
"""Files that describe their folder: of Mosaic Streaming, and of TensorFlow Datasets."""


def starter_for(path: str, target: Path, labels: str | None = None) -> Starter:
    """Looks at data and returns a starter for it; `target` is the folder of the file to be written.
    `labels` is the value of `--labels`. Raises `SourceError` for data of an unknown kind, and for
    what no pipeline can serve, `UnclearLabelsError` where labels must be chosen, and
    `MissingExtraError` for Parquet, Arrow and ArrayRecords without their libraries."""
    if is_remote(path):
        raise SourceError(
            f"infeed init looks at local data only, not at {path}; copy some of its files, look at "
            "these, and write this URL into the file: docs/data.md",
            file=path,
        )
    if not Path(path).is_dir():
        files = [Path(path)] if Path(path).is_file() else matching_files(path)
        if not files:
            raise SourceError(f"no file or folder {path!r}; {describe_nearest_folder(path)}")
        return _files_starter(files, target, labels, path)
    folder = Path(absolute_path(path))  # absolute, so that the folder has a name
    if (folder / STATE).is_file() or (folder / SPLITS).is_file():
        return Starter([*saved_drafts(read_splits(str(folder)) or [str(folder)], target)])
    if prepared := _prepared_starter([folder / name for name in _PREPARED], target):
        return prepared
    try:
        list_images(str(folder))
    except SourceError:  # no image in it
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        files = [file for file in files if INDEX_SUFFIX not in file.name]
        if not files:
            raise SourceError(f"no file in {str(folder)!r}", file=folder) from None
        return _files_starter(files, target, labels)
    return Starter(image_drafts(folder, target, labels))


def _files_starter(
    files: Sequence[Path], target: Path, labels: str | None, pattern: str = ""
) -> Starter:
    """Returns the starter for files of one kind; others among them are ignored. `pattern` is the
    glob that named the files, if one did."""

    def of_kind(*endings: str) -> list[Path]:
        return [file for file in files if file.suffix.lower() in endings]

    tables = of_kind(".csv")
    if labels is not None and not tables:
        raise SourceError(
            f"--labels: {files[0]} is no folder of images and no CSV; leave --labels out",
            file=files[0],
        )
    if arrays := of_kind(".npz"):
        return Starter([arrays_draft([file], target) for file in arrays])
    if arrays := of_kind(".npy"):
        return Starter([arrays_draft(arrays, target)])
    if prepared := _prepared_starter(files, target):
        return prepared
    if records := [file for file in files if is_record_file(file)]:
        return Starter([*record_drafts(records, target, pattern)])
    if tars := of_kind(".tar"):
        return Starter([*tar_drafts(tars, target, pattern)])
    if indexes := of_kind(".idx"):
        return Starter([*token_drafts(indexes, target, pattern)])
    if records := [file for file in files if is_array_record_file(file)]:
        return Starter([*record_drafts(records, target, pattern)])
    if tables:
        return Starter(csv_drafts(Path(absolute_path(str(tables[0]))), target, labels))
    if tables := of_kind(".parquet", ".pq"):
        return Starter([*parquet_drafts(tables, target, pattern)])
    raise _unknown(files)


def _prepared_starter(files: Sequence[Path], target: Path) -> Starter | None:
    """Returns the starter for the folders that such files describe, if there are any."""
    found = [file for file in files if file.name in _PREPARED and file.is_file()]
    # A merged index has the shards of the indexes below it.
    found = [file for file in found if not {f.parent for f in found} & {*file.parent.parents}]
    if not found:
        return None
    from infeed_server.starter import prepared  # noqa: PLC0415 - imports TensorFlow

    drafts: list[Draft] = []
    for file in found:
        folder = Path(absolute_path(str(file))).parent
        if file.name == "index.json":
            drafts.append(prepared.mds_draft(folder, target))
        elif (folder / STATE).is_file():
            drafts += saved_drafts([str(folder)], target)
        else:
            drafts += prepared.tfds_drafts(folder, target)
    return Starter(drafts)


def _unknown(files: Sequence[Path]) -> SourceError:
    """Returns the error for files that no starter knows."""
    first = files[0]
    try:
        with first.open("rb") as opened:
            head = opened.read(len(_GZIP_MAGIC))
    except OSError as error:
        return SourceError(f"cannot read {first}: {error_text(error)}", file=first)
    problem = (
        f"unknown kind of data: {listed([file.name for file in files], 3)}; known: folders of "
        f"{', '.join(EXTENSIONS)}, TFRecords and tars (not compressed), ArrayRecords, MDS, TFDS, "
        "Parquet, folders of save_to_disk, Megatron's .idx, .npz, .npy, a CSV of labels"
    )
    if first.suffix.lower() in EXTENSIONS:
        problem = f"{first} is one image; give its folder: {first.parent}"
    elif not head:
        problem = f"{first} is empty: it has no bytes; write it again"
    elif head == _GZIP_MAGIC:
        problem = (
            f"{first} is compressed with GZIP, which has no random access; write it without "
            "compression, or unpack it: gunzip < OLD > NEW"
        )
    return SourceError(problem, file=first)
