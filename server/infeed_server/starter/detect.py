"""The kind of data at a path, and the starter for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.files import INDEX_SUFFIX, absolute_path, describe_nearest_folder
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.starter.draft import Draft, listed
from infeed_server.starter.files import arrays_draft, is_record_file, matching_files, record_drafts
from infeed_server.starter.images import image_drafts


def drafts_for(path: str, target: Path, labels: str | None = None) -> list[Draft]:
    """Looks at data and returns drafts for it; `target` is the folder of the file to be written.

    `labels` is the value of `--labels`. Raises `SourceError` for data of an unknown kind, and for
    what no pipeline can serve, `UnclearLabelsError` where labels must be chosen, and
    `MissingExtraError` for Parquet without PyArrow.
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
        from infeed_server.starter.parquet import parquet_drafts  # noqa: PLC0415 - needs PyArrow

        return parquet_drafts(tables, target)
    if tables := of_kind(".csv"):
        raise SourceError(
            f"{tables[0]}: a CSV is no data set; for labels of images, give their folder: infeed "
            f"init FOLDER --labels {tables[0]}; for numbers, save its columns as arrays: "
            "np.savez('data.npz', **{name: df[name].to_numpy() for name in df}) with "
            "df = pandas.read_csv(...)",
            file=tables[0],
        )
    if images := of_kind(*EXTENSIONS):
        problem = f"{images[0]} is one image; give its folder: {images[0].parent}"
        raise SourceError(problem, file=images[0])
    raise SourceError(
        f"unknown kind of data: {listed([file.name for file in files], 3)}; known: folders of "
        f"{', '.join(EXTENSIONS)}, TFRecords (not compressed), Parquet, .npz, .npy",
        file=files[0],
    )
