"""Labels of images from the columns of CSVs; nothing is guessed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import EXTENSIONS, ImageListing
from infeed_server.sources.images.table import read_csv
from infeed_server.starter.draft import WRITTEN_LABELS, UnclearError, relative
from infeed_server.starter.paths import DataPath, data_path
from infeed_server.storage.files import abbreviate

FOLDERS, NONE = "folders", "none"
_SAME_VALUES = "all images have the same values"

_MIN_SHARE = 0.5
"""Share of the rows that must name an image, or of the images that must be named: with less, a
table of something else is taken for one of labels."""

_LABEL_WORDS = {
    *("label", "labels", "class", "classes", "classname", "target", "targets"),
    *("category", "categories", "y"),
}
"""Words in the name of a column of labels, or of a file of two columns without a header."""


def _unclear(part: Part, columns: Iterable[Column]) -> UnclearError:
    """Returns the error for several columns that could be the label, or one that is not certain."""
    problem = "it is not clear which column is the label, if any; choose it"
    choices = [*(column.option(part) for column in columns), (NONE, "images without labels")]
    return UnclearError(f"{part.listing.root}: {problem}", "labels", choices)


@dataclass(frozen=True)
class Part:
    """A folder of images: a part of the folder that was given, or the whole of it."""

    whole: ImageListing
    listing: ImageListing
    prefix: str = ""
    """The path of the part below the whole, with a slash at its end."""

    def csv_files(self) -> list[DataPath]:
        """Returns the CSVs in the folders and beside them, but not those that `init` wrote."""
        whole = data_path(self.whole.root)
        folders = [*dict.fromkeys([whole, data_path(self.listing.root)]), whole.parent]
        found = [path for folder in folders for path in sorted(map(str, folder.glob("*.csv")))]
        return [data_path(path) for path in found if not path.endswith(WRITTEN_LABELS)]


@dataclass(frozen=True)
class Column:
    """A column of a CSV that could be the label of a part's images."""

    file: DataPath
    name: str
    labels: Mapping[str, str]
    """The label of each image that has one, by its path below the part's folder."""
    left_out: Mapping[str, int]
    """What rows lack that are left out → the number of these rows."""
    is_clear: bool
    """Whether it is the label without doubt: it says so, and each image has one label. A CSV beside
    the folder must be of its images alone."""
    is_plain: bool
    """Whether the source `images` reads these labels from the CSV as it is."""

    @property
    def differs(self) -> bool:
        """Whether it has several labels."""
        return len(set(self.labels.values())) > 1

    def classes(self) -> list[str]:
        """Returns the classes that text names, sorted; none for numbers and for free text."""
        names = sorted(set(self.labels.values()))
        is_free = len(names) * 2 > len(self.labels)
        return [] if is_free or all(map(is_number, names)) else names

    def option(self, part: Part) -> tuple[str, str]:
        """Returns the value of `--labels` that chooses it, and its description."""
        values = list(dict.fromkeys(self.labels.values()))
        images = f"{len(self.labels)} of {len(part.listing.images)} images"
        shown = abbreviate([value[:20] for value in values], 3)
        name = relative(self.file, Path.cwd())
        return f"{name}:{self.name}", f"{len(values)} different values for {images}: {shown}"


def find_labels(part: Part, notes: list[str]) -> Column | None:
    """Returns the column that is clearly the label; None if no CSV names the images. Appends why a
    CSV in the folder is not used. Raises `UnclearError` for any other case."""
    columns: list[Column] = []
    for file in part.csv_files():
        try:
            table = read_columns(file, part)
            reason = _SAME_VALUES if table else "no column names images below this folder"
        except SourceError as error:  # a file of something else
            table, reason = [], str(error)
        found = [column for column in table if column.differs]
        columns += found
        if not found and file.is_relative_to(part.whole.root):
            notes.append(f"{file.name} is not used: {reason}")
    clear = [column for column in columns if column.is_clear]
    if columns and len(clear) != 1:
        raise _unclear(part, columns)
    return clear[0] if clear else None


def chosen_labels(part: Part, option: str) -> Column | None:
    """Returns the column that `--labels` names; None if it has no label for the part's images.
    Raises `SourceError`, and `UnclearError` for one of several columns."""
    file, _, name = (option, "", "") if data_path(option).is_file() else option.rpartition(":")
    if not data_path(file).is_file():
        problem = "no regular file" if Path(option).exists() else "no such file"
        raise SourceError(
            f"--labels {option}: {problem}; give a CSV, CSV:COLUMN, {FOLDERS} or {NONE}",
            file=option,
        )
    table = read_columns(data_path(file).absolute(), part, chosen=True)
    if not table:
        raise SourceError(
            f"--labels {file}: no column names images below {part.listing.root!r}, which are "
            f"named like {part.listing.images[0].path!r}",
            file=file,
        )
    columns = [column for column in table if (column.name == name if name else column.differs)]
    if name and not columns:
        names = ", ".join(column.name for column in table)
        raise SourceError(f"--labels: no column {name!r} in {file}; it has: {names}", file=file)
    named = [column for column in columns if has_label_word(column.name)]
    columns = named if len(named) == 1 else columns
    if len(columns) > 1:
        raise _unclear(part, columns)
    return columns[0] if columns and columns[0].labels else None


def read_columns(file: DataPath, part: Part, *, chosen: bool = False) -> list[Column]:
    """Returns the columns of a CSV beside the one that names images; empty for another table. A CSV
    in the part's folder names the part's images, another one the images of the whole. One that is
    `chosen` may name few. Raises `SourceError` for a file that is no CSV."""
    table = [cells for _, cells in read_csv(str(file), ",;\t|")]
    if not table or len(table[0]) < 2:
        return []
    is_plain = table == [cells for _, cells in read_csv(str(file))]
    if len(table[0]) == 2 and table[0][0].lower().endswith(EXTENSIONS):
        table.insert(0, ["file", file.stem])
    else:
        is_plain = is_plain and table[0] == ["file", "label"]
    header, *cells = table
    rows = [dict(zip_longest(header, row[: len(header)], fillvalue="")) for row in cells]
    is_of_part = file.is_relative_to(part.listing.root)
    listing, prefix = (part.listing, "") if is_of_part else (part.whole, part.prefix)
    file_column, images = _images(file, rows, listing, chosen=chosen)
    is_of_images = file.is_relative_to(part.whole.root) or all(images)
    columns = []
    for name in header if file_column else ():
        if name == file_column:
            continue
        labels: dict[str, str] = {}
        contradicted = 0
        for image, row in zip(images, rows, strict=True):
            if image and row[name] and image.startswith(prefix):
                label = labels.setdefault(image.removeprefix(prefix), row[name])
                contradicted += label != row[name]
        is_complete = len(labels) == len(part.listing.images) and not contradicted
        read = [(posixpath.normpath(row[file_column]), row[name]) for row in rows]
        left_out = {
            "an image": images.count(""),
            "a label": sum(not row[name] for row in rows),
            "the label of an earlier row of the image": contradicted,
        }
        is_clear = is_complete and is_of_images and has_label_word(name)
        is_read = is_plain and read == [*labels.items()]
        columns.append(Column(file, name, labels, left_out, is_clear, is_read))
    return columns


def _images(
    file: DataPath, rows: Sequence[Mapping[str, str]], listing: ImageListing, *, chosen: bool
) -> tuple[str, list[str]]:
    """Returns the column that names most images, empty if too few, and each row's image or none."""
    names = _names(listing)
    column, images, most = "", [""] * len(rows), (0, 0)
    for name in rows[0] if rows else ():
        found = [_find(row[name], names, file, listing.root) for row in rows]
        named = [row[name] for row, image in zip(rows, found, strict=True) if image]
        # Numbers of rows and of classes can be names without ending.
        are_numbers = has_label_word(name) or len(named) < _MIN_SHARE * len(rows)
        count = sum("." in cell for cell in named), 0 if are_numbers and not chosen else len(named)
        if count > most:
            column, images, most = name, found, count
    is_enough = chosen or max(most) >= _MIN_SHARE * min(len(rows), len(listing.images))
    return (column if is_enough else ""), images


def _names(listing: ImageListing) -> dict[str, str]:
    """Returns image by its path, and by its name where no other has it; with and without ending."""
    names: dict[str, str] = {}
    for path in [image.path for image in listing.images]:
        name = path.rpartition("/")[2]
        for key in {name, name.rpartition(".")[0], path.rpartition(".")[0]}:
            names[key] = "" if key in names else path
    # A path is always the name of one image.
    return names | {image.path: image.path for image in listing.images}


def _find(cell: str, names: Mapping[str, str], file: DataPath, root: str) -> str:
    """Returns the image that a cell names, by its path or the end of it; empty for none."""
    parts = posixpath.normpath(cell.replace("\\", "/")).split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    image, here = next(filter(None, map(names.get, ends)), ""), Path(str(file.parent), cell)
    try:  # of a local file, the row can be of another file with the same name
        is_other = image and here.is_file() and not here.samefile(f"{root}/{image}")
    except (OSError, ValueError):  # a cell can be any text
        return image
    return "" if is_other else image


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return not _LABEL_WORDS.isdisjoint(word.lower() for word in words)


def is_number(text: str) -> bool:
    """Returns whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
