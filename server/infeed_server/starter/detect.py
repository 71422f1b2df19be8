"""The kind of data at a path, and the starter for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.files import INDEX_SUFFIX, absolute_path, describe_nearest_folder
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.starter.draft import Draft, listed
from infeed_server.starter.files import (
    arrays_draft,
    is_record_file,
    matching_files,
    parquet_drafts,
    record_drafts,
)
from infeed_server.starter.images import image_drafts


def drafts_for(path: str, target: Path, labels: str | None = None) -> list[Draft]:
    """Looks at data and returns drafts for it; `target` is the folder of the file to be written.

    `labels` is the value of `--labels`. Raises `SourceError` for data of an unknown kind, and for
    what no pipeline can serve, and `UnclearLabelsError` where labels must be chosen.
    """
    folder = Path(absolute_path(path))  # absolute, so that the folder has a name
    if folder.is_dir():
        try:
            list_images(str(folder))
        except SourceError:  # no image in it
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            files = [file for file in files if INDEX_SUFFIX not in file.name]
        else:
            return image_drafts(folder, target, labels)
    else:
        files = [Path(path)] if Path(path).is_file() else matching_files(path)
    if not files:
        raise SourceError(f"no file at {path!r}; {describe_nearest_folder(path)}")
    if labels is not None:
        raise SourceError(f"--labels: {path} is no folder of images; leave --labels out")
    return _file_drafts(files, target)


def _file_drafts(files: Sequence[Path], target: Path) -> list[Draft]:
    """Returns the drafts for files of one kind; others among them are ignored."""

    def of_kind(*endings: str) -> list[Path]:
        return [file for file in files if file.suffix.lower() in endings]

    if arrays := of_kind(".npz"):
        return [arrays_draft([file], target) for file in arrays]
    if arrays := of_kind(".npy"):
        return [arrays_draft(arrays, target)]
    if records := [file for file in files if is_record_file(file)]:
        return [*record_drafts(records, target)]
    if tables := of_kind(".parquet", ".pq"):
        return [*parquet_drafts(tables, target)]
    raise SourceError(
        f"unknown kind of data: {listed([file.name for file in files], 3)}; known: folders of "
        f"{', '.join(EXTENSIONS)}, with a CSV of labels as --labels, TFRecords (not compressed), "
        "Parquet, .npz and .npy; for a CSV of numbers: np.savez('data.npz', **{name: "
        "df[name].to_numpy() for name in df}) with df = pandas.read_csv(...)",
        file=files[0],
    )
