"""Labels of images from the columns of CSVs; nothing is guessed."""

from __future__ import annotations

import posixpath
from collections import Counter
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
    """The image of each row, empty if it names none of the folder, and the text."""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rows with an image and a text."""
        return [(image, label) for image, label in self.cells if image and label]

    def option(self) -> tuple[str, str]:
        """Returns the value of `--labels` that chooses it, and its description."""
        values = list(dict.fromkeys(label for _, label in self.rows))
        shown = listed([value[:20] for value in values], 3)
        text = f"{len(values)} different values for {len(self.rows)} images: {shown}"
        return f"{relative(self.file, Path.cwd())}:{self.name}", text

    def labels(self) -> dict[str, str]:
        """Returns the label of each image. Raises `SourceError` for an image that has two."""
        found: dict[str, str] = {}
        for image, label in self.rows:
            if found.setdefault(image, label) != label:
                raise SourceError(
                    f"{self.file}: {image} has two labels in the column {self.name!r}, "
                    f"{found[image]} and {label}; delete one of the rows",
                    file=self.file,
                )
        return found

    def classes(self) -> list[str]:
        """Returns the classes that text names, sorted; none for numbers and for free text.

        The classes of the whole CSV, so that all parts of the data have the same.
        """
        values = [label for _, label in self.cells if label]
        names = sorted(set(values))
        return [] if len(names) * 2 > len(values) or all(map(is_number, names)) else names

    def is_plain(self, listing: ImageListing) -> bool:
        """Returns whether the source `images` reads a label of each image from the CSV as it is."""
        try:
            is_read = not labels_from_csv(str(self.file), listing).missing
        except SourceError:
            return False
        return is_read and self.name.lower() == "label"


def find_labels(listing: ImageListing, *, is_part: bool) -> Column | None:
    """Returns the one column `label` of a CSV of file,label that has each image of a folder.

    The CSVs are in the folder and beside it. None if none of them names the images. Raises
    `UnclearLabelsError` for any other case, as for a part of the data.
    """
    folder = Path(listing.root)
    columns: list[Column] = []
    for file in (*sorted(folder.glob("*.csv")), *sorted(folder.parent.glob("*.csv"))):
        if not file.name.endswith(WRITTEN_LABELS):
            with suppress(SourceError):  # a file of something else
                columns += read_columns(file, listing)
    clear = [column for column in columns if not is_part and column.is_plain(listing)]
    if columns and len(clear) != 1:
        raise UnclearLabelsError(listing.root, columns)
    return clear[0] if clear else None


def chosen_labels(listing: ImageListing, option: str) -> Column:
    """Returns the column that `--labels` names, with the images of a folder.

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

    An image has its path below the folder, such a path behind the folder's name, or its own name.
    Raises `SourceError` for a file that is no CSV.
    """
    header, *rows = [cells for _, cells in read_csv(str(file), ",;\t|")] or [[]]
    paths = {image.path for image in listing.images}
    names = Counter(map(posixpath.basename, paths))
    by_name = {posixpath.basename(path): path for path in paths}
    folder = f"/{posixpath.basename(listing.root)}/"

    def find(cell: str) -> str:
        path = posixpath.normpath(cell.replace("\\", "/"))
        below = f"/{path}".rpartition(folder)[2]
        found = [name for name in (path, below) if name in paths]
        return found[0] if found else by_name[path] if names[path] == 1 else ""

    columns = [
        [row[place] if place < len(row) else "" for row in rows] for place in range(len(header))
    ]
    found = [[find(cell) for cell in cells] for cells in columns]
    counts = [sum(map(bool, images)) for images in found]
    if not any(counts):
        return []
    best = counts.index(max(counts))
    return [
        Column(file, header[place], [*zip(found[best], cells, strict=True)])
        for place, cells in enumerate(columns)
        if place != best
    ]


def is_number(text: str) -> bool:
    """Returns whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
