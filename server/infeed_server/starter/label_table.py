"""Tables of labels: a CSV whose rows are matched with images, whatever its columns are called."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from infeed.errors import SourceError
from infeed_server.sources.storage_faults import error_text

_DELIMITERS = ",;\t|"
_SAMPLED_ROWS = 200
"""Rows that decide which column names the images."""
_MIN_SHARE = 0.5
"""Share of these rows that must name an image."""
_LABEL_WORDS = ("label", "class", "target", "category", "y")
"""Words in the header of a column of labels, the best first."""


@dataclass(frozen=True)
class LabelTable:
    """The labels of images, by path below their folder."""

    labels: Mapping[str, str]
    column: str
    """The column of labels; empty if the table has no header."""
    other_columns: Sequence[str]
    """Columns that name neither image nor label."""
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


def labels_csv(labels: Mapping[str, str | int]) -> str:
    """Returns labels by image as the source `images` reads them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", "label"))
    writer.writerows(sorted(labels.items()))
    return out.getvalue()


def is_integer(text: str) -> bool:
    """Returns whether a label is an integer, with or without a sign."""
    return text.lstrip("+-").isdigit()


class Table(NamedTuple):
    """The cells of a CSV, and whether commas separate them."""

    rows: list[list[str]]
    has_commas: bool


def read_table(file: Path) -> Table:
    """Reads a CSV with any usual delimiter. Raises `SourceError`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError(f"cannot read {str(file)!r}: {error_text(error)}", file=file) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8 text", file=file) from error
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [[cell.strip() for cell in row] for row in reader if row]
    except csv.Error as error:
        raise SourceError(f"{file}, line {reader.line_num}: {error}", file=file) from error
    return Table(rows, delimiter == ",")


def match_table(table: Table, images: Sequence[str]) -> LabelTable | None:
    """Matches the rows of a table with images, given by path; None if they are of something else.

    An image is named by its path, by the end of it, by its name, or by its name without ending.
    """
    rows, index = table.rows, _index(images)
    width = max(map(len, rows), default=0)
    sampled = rows[: _SAMPLED_ROWS + 1]
    files = max(range(width), key=lambda column: _names_images(sampled, column, index), default=0)
    required = _MIN_SHARE * max(len(sampled) - 1, 1)
    if width < 2 or sum(_names_images(sampled, files, index)) < required:
        return None
    has_header = _find(rows[0][files], index) is None
    header = [cell.lower() for cell in rows[0]] if has_header else []
    body = rows[1:] if has_header else rows
    label = _label_column(header, body, width, files)
    labels: dict[str, str] = {}
    unknown = empty = 0
    contradicted: list[str] = []
    is_direct = header.count("file") == header.count("label") == 1 or (not header and width == 2)
    is_direct &= table.has_commas and (files, label) == ((0, 1) if not header else _named(header))
    for row in body:
        image = _find(row[files], index) if files < len(row) else None
        text = row[label] if label < len(row) else ""
        unknown += image is None
        empty += image is not None and text == ""
        is_direct &= len(row) == width and image is not None and text != ""
        if image is None or text == "":
            continue
        is_direct &= posixpath.normpath(row[files]) == image and image not in labels
        if labels.setdefault(image, text) != text:
            contradicted.append(image)
    names = dict(enumerate(rows[0] if has_header else []))
    others = [name for column, name in names.items() if column not in (files, label)]
    column = names.get(label, "")
    return LabelTable(labels, column, others, unknown, empty, contradicted, is_direct)


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
    is_label = bool(cells) and not set(_words(cells[0])).isdisjoint(_LABEL_WORDS)
    return with_ending, 0 if is_label else len(named) - with_ending


def _words(header: str) -> list[str]:
    return header.lower().replace("-", "_").split("_")


def _label_column(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, files: int
) -> int:
    """Returns the column with the word of a label in its header, else one whose values repeat.

    A column of one value, such as that of a part, and one of all different, such as that of an
    id, are taken only if there is no other.
    """
    others = [column for column in range(width) if column != files]
    for word in _LABEL_WORDS:
        for column in others:
            if column < len(header) and word in _words(header[column]):
                return column
    for column in others:
        cells = [row[column] for row in rows if column < len(row)]
        if 1 < len(set(cells)) <= len(cells) // 2:
            return column
    return others[0]


def _named(header: Sequence[str]) -> tuple[int, int]:
    if "file" not in header or "label" not in header:
        return -1, -1
    return header.index("file"), header.index("label")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
