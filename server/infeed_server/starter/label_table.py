"""Tables of labels: CSVs whose rows name images, whatever their columns are called."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from infeed_server.sources.images.labels import read_csv
from infeed_server.sources.images.listing import EXTENSIONS, ImageListing

_MIN_SHARE = 0.5
"""Share of the rows that must name an image, or of the images that must be named: with less, a
table of something else is taken for one of labels."""

_LABEL_WORDS = {
    *("label", "labels", "class", "classes", "classname", "target", "targets"),
    *("category", "categories", "y"),
}
"""Words in the name of a column of labels, or of a file of two columns without a header."""


@dataclass(frozen=True)
class LabelTable:
    """A CSV whose rows name images."""

    file: Path
    rows: Sequence[Mapping[str, str]]
    """The cells by column. Without a header the columns are `file`, and the name of the CSV."""
    file_column: str
    images: Sequence[str | None]
    """The image of each row, by its path below the folder."""

    @classmethod
    def read(cls, file: Path, listing: ImageListing, *, chosen: bool) -> LabelTable | None:
        """Reads a CSV; None if it names too few images, or none if it is `chosen`.

        Raises `SourceError` for a file that is no CSV.
        """
        rows = _read_rows(file)
        names = _names([image.path for image in listing.images])
        column = _file_column(rows, names, len(listing.images), chosen=chosen)
        if column is None or len(rows[0]) < 2:
            return None
        images = [_own(file, row[column], names, listing) for row in rows]
        return cls(file, rows, column, images)

    @property
    def label_columns(self) -> list[str]:
        """The columns that do not name the images."""
        return [column for column in self.rows[0] if column != self.file_column]

    def differs(self, column: str) -> bool:
        """Returns whether a column has several values."""
        return len({row[column] for row in self.rows} - {""}) > 1

    def is_read_as(self, labels: Mapping[str, str]) -> bool:
        """Returns whether the source `images` reads these labels from the CSV as it is."""
        table = [cells for _, cells in read_csv(str(self.file))]
        rows = table[1:] if table[0] == ["file", "label"] else table
        paired = [(posixpath.normpath(cells[0]), *cells[1:]) for cells in rows]
        return paired == [*labels.items()]


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return not _LABEL_WORDS.isdisjoint(word.lower() for word in words)


def _read_rows(file: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV with any usual delimiter."""
    table = [cells for _, cells in read_csv(str(file), ",;\t|")]
    names = table[0] if table else []
    if len(names) == 2 and names[0].lower().endswith(EXTENSIONS):
        names = ["file", file.stem]
    else:
        table = table[1:]
    return [dict(zip_longest(names, cells[: len(names)], fillvalue="")) for cells in table]


def _file_column(
    rows: Sequence[Mapping[str, str]],
    names: Mapping[str, str | None],
    images: int,
    *,
    chosen: bool,
) -> str | None:
    """Returns the column that names the images; None if no column names enough.

    Numbers of rows and of classes can be names without ending, so these count only where half of
    the rows have them, and not in a column with the word of a label.
    """

    def named(column: str) -> tuple[int, int]:
        found = [row[column] for row in rows if _find(row[column], names) is not None]
        is_of_images = not has_label_word(column) and len(found) >= _MIN_SHARE * len(rows)
        return sum("." in cell for cell in found), len(found) if is_of_images or chosen else 0

    best = max(rows[0] if rows else (), key=named, default=None)
    if best is None or max(named(best)) < (1 if chosen else _MIN_SHARE * min(len(rows), images)):
        return None
    return best


def _names(paths: Sequence[str]) -> dict[str, str | None]:
    """Returns every name of each image, with and without ending; None for one that several have."""
    names: dict[str, str | None] = {}
    for path in paths:
        name = path.rpartition("/")[2]
        for key in {name, name.rpartition(".")[0]}:
            names[key] = None if key in names else path
    # A path is always the name of one image.
    return names | {path: path for path in paths}


def _find(text: str, names: Mapping[str, str | None]) -> str | None:
    """Returns the image that a cell names, by its path or the end of it."""
    parts = posixpath.normpath(text.replace("\\", "/")).split("/") if text else []
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((image for end in ends if (image := names.get(end))), None)


def _own(
    file: Path, cell: str, names: Mapping[str, str | None], listing: ImageListing
) -> str | None:
    """Returns the image of a row, unless the row is of another file with the same name."""
    image, here = _find(cell, names), file.parent / cell
    try:
        is_other = bool(image) and here.is_file() and not here.samefile(f"{listing.root}/{image}")
    except (OSError, ValueError):  # a cell can be any text
        is_other = False
    return None if is_other else image
