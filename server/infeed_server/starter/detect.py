"""The kind of data at a path, and the starter for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.files import INDEX_SUFFIX, absolute_path, describe_nearest_folder
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.sources.storage_faults import error_text
from infeed_server.starter.arrays import arrays_starter
from infeed_server.starter.draft import Place, Starter, listed
from infeed_server.starter.images import csv_starter, images_starter
from infeed_server.starter.label_choice import LabelOption
from infeed_server.starter.records import is_record_file, records_starter
from infeed_server.starter.shards import matching_files

_PARQUET = (".parquet", ".pq")
_GZIP_MAGIC = b"\x1f\x8b"


def starter_for(path: str, place: Place, option: LabelOption | None = None) -> Starter:
    """Looks at data and returns a starter for it; `place` is that of the file to be written.

    `option` selects the labels of images. Raises `SourceError` for data of an unknown kind, and for
    what no pipeline can serve, `UnclearLabelsError` where an option is necessary, and
    `MissingExtraError` for Parquet without PyArrow.
    """
    if Path(path).is_dir():
        # Absolute, so that the folder has a name.
        return _folder_starter(Path(absolute_path(path)), place, option)
    files = [Path(path)] if Path(path).is_file() else matching_files(path)
    if not files:
        raise SourceError(f"no file or folder {path!r}; {describe_nearest_folder(path)}")
    return _files_starter(files, place, option, path)


def _folder_starter(folder: Path, place: Place, option: LabelOption | None) -> Starter:
    try:
        list_images(str(folder))
    except SourceError:  # no image in it
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = [path for path in files if INDEX_SUFFIX not in path.name]
        if not files:
            raise SourceError(f"no file in {str(folder)!r}", file=folder) from None
        return _files_starter(files, place, option)
    return images_starter(folder, place, option)


def _files_starter(
    files: Sequence[Path], place: Place, option: LabelOption | None, pattern: str = ""
) -> Starter:
    """Returns the starter for files of one kind; others among them are ignored.

    `pattern` is the glob that named them, if one did.
    """
    tables = [file for file in files if file.suffix.lower() == ".csv"]
    if option is not None and not tables:
        raise SourceError(
            f"--labels: {files[0]} is no folder of images and no CSV; leave --labels out",
            file=files[0],
        )
    for suffix in (".npz", ".npy"):
        arrays = [file for file in files if file.suffix == suffix]
        if arrays and suffix == ".npz":
            starters = [arrays_starter([file], place) for file in arrays]
            return Starter([draft for each in starters for draft in each.pipelines])
        if arrays:
            return arrays_starter(arrays, place)
    if records := [file for file in files if is_record_file(file)]:
        return records_starter(records, place, pattern)
    first = files[0]
    if tables:
        return csv_starter(Path(absolute_path(str(tables[0]))), place, option)
    if tables := [file for file in files if file.suffix.lower() in _PARQUET]:
        from infeed_server.starter.parquet import parquet_starter  # noqa: PLC0415 - needs PyArrow

        return parquet_starter(tables, place, pattern)
    if first.suffix.lower() in EXTENSIONS:
        raise SourceError(f"{first} is one image; give its folder: {first.parent}", file=first)
    head = _head(first)
    if not head:
        raise SourceError(f"{first} is empty: it has no bytes; write it again", file=first)
    if head == _GZIP_MAGIC:
        raise SourceError(
            f"{first} is compressed with GZIP, which has no random access; write it without "
            "compression, or unpack it: gunzip < OLD > NEW",
            file=first,
        )
    raise SourceError(
        f"unknown kind of data: {listed([file.name for file in files], 3)}; known: folders of "
        f"{', '.join(EXTENSIONS)}, TFRecords (not compressed), Parquet, .npz, .npy, a CSV of "
        "labels",
        file=first,
    )


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_GZIP_MAGIC))
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error_text(error)}", file=file) from error
