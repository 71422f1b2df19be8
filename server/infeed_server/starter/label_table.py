"""Tables of labels: a CSV whose rows are matched with images, whatever its columns are called."""

from __future__ import annotations

import csv
import io
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.files import read_bytes
from infeed_server.sources.images.listing import EXTENSIONS, ImageListing

_DELIMITERS = ",;\t|"
_SAMPLED_ROWS = 200
"""Rows that decide which column names the images; all do if these do not."""
_MIN_SHARE = 0.5
"""Share of these rows that must name an image, or of the images that must be named."""
_LABEL_WORDS = {
    *("label", "labels", "class", "classes", "classname", "target", "targets"),
    *("category", "categories", "y"),
}
"""Words in the name of a column of labels, or of a file of labels without a header."""


@dataclass(frozen=True)
class LabelTable:
    """The labels of images, by path below their folder."""

    labels: Mapping[str, str]
    unknown_rows: int
    """Rows that name no image."""
    empty_rows: int
    """Rows of an image without a label."""
    contradicted: Sequence[str]
    """Images that a later row gives another label."""
    is_direct: bool
    """Whether the source `images` reads the CSV as it is."""

    def classes(self) -> list[str] | None:
        """Returns the classes that text names, sorted; None for numbers and for free text."""
        names = sorted(set(self.labels.values()))
        is_free = len(names) * 2 > len(self.labels)
        return None if is_free or all(map(_is_number, names)) else names

    def has_fractions(self) -> bool:
        """Returns whether the labels are numbers, and not all of them integers."""
        texts = set(self.labels.values())
        return all(map(_is_number, texts)) and not all(map(is_integer, texts))


@dataclass(frozen=True)
class ImageTable:
    """A CSV whose rows name images."""

    file: Path
    columns: Sequence[str]
    """The names of the columns; without a header their numbers, from 1."""
    has_header: bool
    rows: Sequence[Sequence[str]]
    """The rows behind the header."""
    images: Sequence[str | None]
    """The image of each row."""
    foreign_rows: int
    """Rows that name images of another folder."""
    file_column: int
    has_commas: bool

    def label_columns(self) -> list[str]:
        """Returns the columns whose values differ, besides that of the images."""
        others = [number for number in range(len(self.columns)) if number != self.file_column]
        return [self.columns[each] for each in others if len(set(self._cells(each)) - {""}) > 1]

    def says_label(self, column: str) -> bool:
        """Returns whether the column's name has the word of a label, or that of a table without a
        header and other columns."""
        name = column if self.has_header else self.file.stem if len(self.columns) == 2 else ""
        return has_label_word(name)

    def named(self) -> int:
        """Returns how many rows name an image."""
        return sum(image is not None for image in self.images)

    def names_enough(self, listing: ImageListing) -> bool:
        """Returns whether the rows name images by path, or half of all images."""
        named = len(set(self.images) - {None})
        return bool(self.named_by_path()) or named >= _MIN_SHARE * len(listing.images)

    def named_by_path(self) -> int:
        """Returns how many rows name an image by its path below the folder."""
        named = zip(self.rows, self.images, strict=True)
        return sum(
            image is not None and posixpath.normpath(row[self.file_column]) == image
            for row, image in named
        )

    def labels(self, column: str) -> LabelTable:
        """Returns the labels of a column."""
        number = self.columns.index(column)
        labels: dict[str, str] = {}
        unknown = empty = 0
        contradicted: list[str] = []
        is_direct = self._is_direct(number)
        for row, image, text in zip(self.rows, self.images, self._cells(number), strict=True):
            unknown += image is None
            empty += image is not None and text == ""
            is_direct &= len(row) == len(self.columns) and image is not None and text != ""
            if image is None or text == "":
                continue
            is_direct &= posixpath.normpath(row[self.file_column]) == image and image not in labels
            if labels.setdefault(image, text) != text:
                contradicted.append(image)
        return LabelTable(labels, unknown - self.foreign_rows, empty, contradicted, is_direct)

    def _cells(self, column: int) -> list[str]:
        return [row[column] if column < len(row) else "" for row in self.rows]

    def _is_direct(self, label: int) -> bool:
        names = [name.lower() for name in self.columns]
        if not self.has_header:
            return self.has_commas and len(names) == 2 and (self.file_column, label) == (0, 1)
        wanted = names.count("file") == names.count("label") == 1
        return (
            self.has_commas
            and wanted
            and (self.file_column, label) == (names.index("file"), names.index("label"))
        )


def labels_csv(labels: Mapping[str, str | int]) -> str:
    """Returns labels by image as the source `images` reads them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", "label"))
    writer.writerows(sorted(labels.items()))
    return out.getvalue()


def is_integer(text: str) -> bool:
    """Returns whether a label is an integer, with or without a sign."""
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return not _LABEL_WORDS.isdisjoint(word.lower() for word in words)


def read_rows(file: Path) -> tuple[list[list[str]], bool]:
    """Returns the cells of a CSV with any usual delimiter, and whether that is a comma.

    Raises `SourceError`.
    """
    try:
        text = read_bytes(str(file)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8 text", file=file) from error
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [[cell.strip() for cell in row] for row in reader if row]
    except csv.Error as error:
        raise SourceError(f"{file}, line {reader.line_num}: {error}", file=file) from error
    return rows, delimiter == ","


def match_table(file: Path, listing: ImageListing, *, chosen: bool = False) -> ImageTable | None:
    """Matches the rows of a CSV with images; None if they are of something else.

    An image is named by its path, by the end of it, by its name, or by its name without ending. Of
    a CSV that is `chosen`, one row that names an image is enough. Raises `SourceError` for a file
    that is no CSV.
    """
    rows, has_commas = read_rows(file)
    index = _index([image.path for image in listing.images])
    width = max(map(len, rows), default=0)
    files = _file_column(rows, index, len(listing.images), chosen=chosen)
    if width < 2 or files is None:
        return None
    has_header = _is_header(rows[0], files, index)
    columns = list(rows[0]) if has_header else []
    columns += [str(number + 1) for number in range(len(columns), width)]
    images: list[str | None] = []
    foreign = 0
    body = rows[1:] if has_header else rows
    for row in body:
        text = row[files] if files < len(row) else ""
        image = _find(text, index)
        here = os.path.join(file.parent, text)  # noqa: PTH118 - a cell can be any text
        if os.path.isfile(here):  # noqa: PTH113
            # Another file of the same name is not meant.
            is_image = image is not None and Path(here).samefile(f"{listing.root}/{image}")
            foreign += not is_image
            image = image if is_image else None
        images.append(image)
    return ImageTable(file, columns, has_header, body, images, foreign, files, has_commas)


def _file_column(
    rows: Sequence[Sequence[str]], index: Mapping[str, str | None], images: int, *, chosen: bool
) -> int | None:
    """Returns the column that names the images: in half of the rows, or half of the images with
    their endings, as a table of a larger data set does."""
    width = max(map(len, rows), default=0)
    for looked_at in (rows[: _SAMPLED_ROWS + 1], rows):
        counts = [_names_images(looked_at, column, index) for column in range(width)]
        column = max(range(width), key=counts.__getitem__, default=0)
        with_ending, without = counts[column] if counts else (0, 0)
        named = with_ending + without
        of_rows = named >= _MIN_SHARE * max(len(looked_at) - 1, 1)
        if of_rows or with_ending >= _MIN_SHARE * images:
            return column
    return column if chosen and named else None


def _is_header(row: Sequence[str], files: int, index: Mapping[str, str | None]) -> bool:
    """Returns whether the first row names columns, and not an image that is not there."""
    text = row[files] if files < len(row) else ""
    if _find(text, index) is not None or text.lower().endswith(EXTENSIONS):
        return False
    return not all(_is_number(cell) for column, cell in enumerate(row) if column != files)


def _index(images: Sequence[str]) -> dict[str, str | None]:
    """Returns every name of each image; None for a name that several have."""
    index: dict[str, str | None] = {}
    for image in images:
        name = image.rpartition("/")[2]
        for key in {name, name.rpartition(".")[0]}:
            index[key] = None if key in index else image
    # A path is always that of one image.
    return index | {image: image for image in images}


def _find(text: str, index: Mapping[str, str | None]) -> str | None:
    parts = posixpath.normpath(text.replace("\\", "/")).split("/") if text else []
    for start in range(len(parts)):
        if image := index.get("/".join(parts[start:])):
            return image
    return None


def _names_images(
    rows: Sequence[Sequence[str]], column: int, index: Mapping[str, str | None]
) -> tuple[int, int]:
    """Returns the rows whose cell names an image with its ending, and those without.

    Numbers of rows and of classes can be names of images without their endings. So such a name
    counts less, and not at all in a column with the word of a label.
    """
    cells = [row[column] for row in rows if column < len(row)]
    named = [cell for cell in cells if _find(cell, index) is not None]
    with_ending = sum("." in cell for cell in named)
    is_label = bool(cells) and has_label_word(cells[0])
    return with_ending, 0 if is_label else len(named) - with_ending


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
