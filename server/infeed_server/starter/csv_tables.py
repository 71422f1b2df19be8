"""Columns of tables beside images, each a possible label, and the images that their rows name."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.starter.listing import words
from infeed_server.storage.files import abbreviate

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A number as TensorFlow reads it, which takes neither `1_000` nor Python's other forms."""
_MIN_SHARE = 0.5
"""Share of the rows that must name an image, or of the images that must be named: with less, a
table of something else is taken for one of labels."""
_LABEL_WORDS = {"label", "labels", "class", "classes", "classname", "target", "targets"}
_LABEL_WORDS |= {"category", "categories", "y"}
"""Words in the name of a column of labels, or of a file of two columns without a header."""


class Table(NamedTuple):
    """A CSV or JSON lines, as a user names its file."""

    file: str
    rows: Sequence[Sequence[str]]
    """The names of the columns, if it has them, and the cells of each row."""
    folder: str | None = ""
    """Its folder below the one of all images; None if it is outside."""


@dataclass(frozen=True)
class Column:
    """A column of a table, or of several that have the same columns."""

    files: Sequence[str]
    name: str
    labels: Mapping[str, str]
    """Image → its label."""
    left_out: Counter[str]
    """What rows lack that are left out → the number of these rows."""
    near: str = ""
    """How the rows' names of images differ from the files' names, if they do."""
    paths: Sequence[str] = ()
    """The images of a table that the source `images` reads as it is, as its rows name them."""
    is_outside: bool = False
    """Whether a table is not in the folder of the images."""

    @property
    def options(self) -> list[str]:
        """The values of --labels that name the column."""
        return [f"{file}:{self.name}" for file in self.files]


def find_columns(
    tables: Sequence[Table], images: Sequence[str], root: str, option: str = ""
) -> tuple[list[Column], list[str]]:
    """Returns the columns beside those that name images, and why tables are not used. `root` is the
    name of the folder of all images; a table that the option names may name few of them."""
    found: dict[tuple[str, ...], Column] = {}
    notes = []
    for table in tables:
        header, *rows = _with_header(table)
        cells = [dict(zip_longest(header, row[: len(header)], fillvalue="")) for row in rows]
        scope = f"{table.folder}/" if table.folder else ""
        below = [image for image in images if image.startswith(scope)]
        name, named, near = _images(cells, below or images, scope if below else "", root)
        is_chosen = option == table.file or option.startswith(f"{table.file}:")
        least = 1 if is_chosen else _MIN_SHARE * min(len(rows), len(images))
        if not name or len({*named} - {""}) < least:
            first = abbreviate([", ".join(row) for row in rows], 1) or "none"
            notes.append(f"{table.file} is not used: its rows, such as {first}, name no images")
            continue
        for column in _columns(table, header, cells, name, named):
            before = found.get(key := (*header, column.name))
            found[key] = Column(
                [*(before.files if before else ()), table.file],
                column.name,
                {**column.labels, **(before.labels if before else {})},
                column.left_out + (before.left_out if before else Counter()),
                near,
                () if before or near else column.paths,
                column.is_outside,
            )
    columns = [column for column in found.values() if len({*column.labels.values()}) > 1]
    if found and not columns:
        notes.append(f"{tables[0].file} is not used: all images have the same values")
    return columns, notes


def _with_header(table: Table) -> list[list[str]]:
    rows = [[*row] for row in table.rows]
    if rows and rows[0][0].startswith("sep="):  # of Excel
        del rows[0]
    images = [cell.lower().endswith(EXTENSIONS) for cell in rows[0]] if rows else []
    if any(images):  # the first line is no header
        stem = posixpath.basename(table.file).rpartition(".")[0]
        names = [stem] * 2 if len(images) == 2 else [f"column{n + 1}" for n in range(len(images))]
        rows.insert(
            0, ["file" if is_file else name for is_file, name in zip(images, names, strict=True)]
        )
    return rows or [[]]


def _columns(
    table: Table,
    header: Sequence[str],
    cells: Sequence[Mapping[str, str]],
    file: str,
    named: Sequence[str],
) -> Iterator[Column]:
    for name in [name for name in header if name != file]:
        labels: dict[str, str] = {}
        left_out = Counter({"an image": named.count("")})
        for image, row in zip(named, cells, strict=True):
            left_out["a label"] += bool(image) and not row[name]
            if image and row[name] and labels.setdefault(image, row[name]) != row[name]:
                left_out["the label of an earlier row"] += 1
        is_read = (file, name) == ("file", "label") and not left_out.total()
        paths = [posixpath.normpath(row[file]) for row in cells] if is_read else ()
        yield Column([table.file], name, labels, left_out, "", paths, table.folder is None)


def _images(
    cells: Sequence[Mapping[str, str]], images: Sequence[str], scope: str, root: str
) -> tuple[str, list[str], str]:
    """Returns the column that names most images, empty if none does; the image of each row, or
    none; and how the names differ, if they do."""
    exact, near = _names(images, scope)
    best: tuple[tuple[bool, int, int], str, list[str], str] = ((False, 0, 0), "", [], "")
    for name in cells[0] if cells else ():
        texts = [row[name] for row in cells]
        first = _find(texts, exact, root)
        others = [near.get(fold(text), "") for text in texts]
        # An image that a row names exactly is no other row's.
        pairs = [(i, j if j not in first else "") for i, j in zip(first, others, strict=True)]
        found = [image or other for image, other in pairs]
        unlike = zip(texts, pairs, strict=True)
        differs = next((f"{text!r} is {j}" for text, (i, j) in unlike if j and not i), "")
        named = [text for text, image in zip(texts, found, strict=True) if image]
        # Numbers of rows and of classes can be names without ending.
        is_number = has_label_word(name) or len(named) < _MIN_SHARE * len(texts)
        endings = sum("." in text and not is_number_text(text) for text in named)
        count = (any(first), endings, 0 if is_number else len(named))
        if count > best[0] and any(count[1:]):
            best = (count, name, found, differs)
    return best[1:]


def _names(images: Sequence[str], scope: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns image by its path, and by its name where no other has it; with and without ending;
    and by these as `fold` returns them."""
    exact: dict[str, str] = {}
    near: dict[str, str] = {}
    paths = {normalize("NFC", image.removeprefix(scope)): image for image in images}
    for path, image in paths.items():
        name = posixpath.basename(path)
        for key in {name, name.rpartition(".")[0], path.rpartition(".")[0]}:
            exact[key] = "" if key in exact else image
        for key in {fold(name), fold(name.rpartition(".")[0]), fold(path)}:
            near[key] = "" if key in near else image
    # A path is always the name of one image.
    return exact | paths, near


def _find(texts: Sequence[str], names: Mapping[str, str], root: str) -> list[str]:
    """Returns the image that each text names, by its path or the end of it; empty for none. If the
    rows are of several folders above, only rows of the root's name count."""
    found = []
    for text in texts:
        parts = posixpath.normpath(normalize("NFC", text.replace("\\", "/"))).split("/")
        ends = ((names.get("/".join(parts[n:]), ""), parts[:n][-1:]) for n in range(len(parts)))
        found.append(next((end for end in ends if end[0]), ("", [])))
    above = {(*folders,) for image, folders in found if image}
    is_mixed = len(above) > 1 and (root,) in above
    return [image if not is_mixed or folders == [root] else "" for image, folders in found]


def fold(name: str) -> str:
    """Returns a name without what often differs: case, Unicode form, escapes of URLs, zeros."""
    text = normalize("NFC", unquote(name)).casefold().strip()
    text = re.sub(r"^([0-9]+)\.0$", r"\1", text)  # of pandas
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    return not _LABEL_WORDS.isdisjoint(words(name))


def classes_of(values: Sequence[str]) -> list[str]:
    """Returns the classes that texts name, sorted; none for numbers and for free text."""
    names = sorted({*values})
    return [] if len(names) * 2 > len(values) or all(map(is_number_text, names)) else names


def is_fraction(text: str) -> bool:
    """Returns whether a label is a number that the source `images` reads as text."""
    return is_number_text(text) and not text.lstrip("+-").isdecimal()


def is_number_text(text: str) -> bool:
    """Returns whether a label is a number, of 64 bits if it is an integer."""
    is_whole = text.lstrip("+-").isdecimal()
    return bool(_NUMBER.fullmatch(text)) and (not is_whole or -(1 << 63) <= int(text) < 1 << 63)
