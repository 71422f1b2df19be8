"""Labels of images from the columns of CSVs; nothing is guessed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.labels import labels_from_csv, read_csv
from infeed_server.sources.images.listing import ImageListing
from infeed_server.starter.draft import WRITTEN_LABELS, listed, relative

FOLDERS, NONE = "folders", "none"


class UnclearLabelsError(SourceError):
    """Several columns could be the label, or one that is not certain to be.

    `options` has the values of `--labels`, each with a description.
    """

    def __init__(self, root: str, columns: Iterable[Column]) -> None:
        super().__init__(f"{root}: it is not clear which column is the label, if any; choose it")
        self.options = [*(column.option() for column in columns), (NONE, "images without labels")]


@dataclass(frozen=True)
class Column:
    """A column of a CSV that could be the label of a folder's images."""

    file: Path
    name: str
    cells: Sequence[tuple[str, str]]
    """The image and the text of each row that has both."""
    left_out: int
    """Rows that name no image, or have no text."""

    def option(self) -> tuple[str, str]:
        """Returns the value of `--labels` that chooses it, and its description."""
        values = list(dict.fromkeys(label for _, label in self.cells))
        shown = listed([value[:20] for value in values], 3)
        text = f"{len(values)} different values for {len(self.cells)} images: {shown}"
        return f"{relative(self.file, Path.cwd())}:{self.name}", text

    def labels(self) -> dict[str, str]:
        """Returns the label of each image. Raises `SourceError` for an image that has two."""
        found: dict[str, str] = {}
        for image, label in self.cells:
            if found.setdefault(image, label) != label:
                raise SourceError(
                    f"{self.file}: {image} has two labels in the column {self.name!r}, "
                    f"{found[image]} and {label}; delete one of the rows",
                    file=self.file,
                )
        return found

    def classes(self) -> list[str]:
        """Returns the classes that text names, sorted; none for numbers and for free text."""
        values = [label for _, label in self.cells]
        names = sorted(set(values))
        is_free = len(names) * 2 > len(values)
        return [] if is_free or all(map(is_number, names)) else names

    def is_plain(self, listing: ImageListing) -> bool:
        """Returns whether the source `images` reads a label of each image from the CSV as it is."""
        try:
            is_read = not labels_from_csv(str(self.file), listing).missing
        except SourceError:
            return False
        return is_read and self.name.lower() == "label"


def find_labels(listing: ImageListing, *, is_split: bool) -> Column | None:
    """Returns the one column `label` of a CSV of file,label that has each image of a folder.

    The CSVs are in the folder and beside it. None if none of them names the images. Raises
    `UnclearLabelsError` for any other case, as one with parts of the data.
    """
    folder = Path(listing.root)
    columns: list[Column] = []
    for file in (*sorted(folder.glob("*.csv")), *sorted(folder.parent.glob("*.csv"))):
        if not file.name.endswith(WRITTEN_LABELS):
            with suppress(SourceError):  # a file of something else
                columns += read_columns(file, listing)
    clear = [column for column in columns if not is_split and column.is_plain(listing)]
    if columns and len(clear) != 1:
        raise UnclearLabelsError(listing.root, columns)
    return clear[0] if clear else None


def chosen_labels(listing: ImageListing, option: str) -> Column:
    """Returns the column that `--labels` names.

    Raises `SourceError`, and `UnclearLabelsError` for one of several columns.
    """
    path, _, name = (option, "", "") if Path(option).is_file() else option.rpartition(":")
    if not Path(path).is_file():
        problem = f"no such file; give a CSV, CSV:COLUMN, {FOLDERS} or {NONE}"
        raise SourceError(f"--labels {option}: {problem}", file=option)
    table = read_columns(Path(path).absolute(), listing)
    if not table:
        raise SourceError(
            f"--labels {path}: no column names images below {listing.root!r} by path or name, such "
            f"as {listing.images[0].path!r}; write a CSV of file,label",
            file=path,
        )
    columns = [column for column in table if name in ("", column.name)]
    if not columns:
        names = ", ".join(column.name for column in table)
        raise SourceError(f"--labels: no column {name!r} in {path}; it has: {names}", file=path)
    if len(columns) > 1:
        raise UnclearLabelsError(listing.root, columns)
    return columns[0]


def read_columns(file: Path, listing: ImageListing) -> list[Column]:
    """Returns the columns of a CSV beside the one that names images; empty for another table.

    Raises `SourceError` for a file that is no CSV.
    """
    header, *rows = [cells for _, cells in read_csv(str(file), ",;\t|")] or [[]]
    names = _names(listing)

    def find(cell: str) -> str:
        path = posixpath.normpath(cell.replace("\\", "/"))
        return names.get(path) or names.get(posixpath.basename(path), "")

    columns = [
        (name, [row[place] if place < len(row) else "" for row in rows])
        for place, name in enumerate(header)
    ]
    found = [[find(cell) for cell in cells] for _, cells in columns]
    images = max(found, key=lambda images: sum(map(bool, images)), default=[])
    if not any(images):
        return []
    made = []
    for (name, labels), own in zip(columns, found, strict=True):
        pairs = zip(images, labels, strict=True)
        cells = [(image, label) for image, label in pairs if image and label]
        if own is not images:
            made.append(Column(file, name, cells, len(rows) - len(cells)))
    return made


def _names(listing: ImageListing) -> dict[str, str]:
    """Returns image by its path, and by its name where no other has it."""
    names: dict[str, str] = {}
    for image in listing.images:
        name = posixpath.basename(image.path)
        names[name] = "" if name in names else image.path
    # A path is always the name of one image.
    return names | {image.path: image.path for image in listing.images}


def is_number(text: str) -> bool:
    """Returns whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
