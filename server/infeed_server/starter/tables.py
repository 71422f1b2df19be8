"""Tables beside images: columns that could be labels, and the images that their rows name."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
_LABEL_WORDS = {"label", "class", "target", "category", "y"}
_LABEL_WORDS |= {"labels", "classes", "targets", "categories", "classname"}


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
    near: str
    """How the rows' names of images differ from the files' names, if they do."""
    left_out: Sequence[str]
    """Which rows are."""
    is_clear: bool
    """Whether it is the label by its name, and each row of one image, with one label."""

    def is_named(self, option: str) -> bool:
        """Returns whether a value of --labels names it."""
        return option in (*self.files, *(f"{file}:{self.name}" for file in self.files))


class _Row(NamedTuple):
    """A cell of a column: the image that its row names, or none, and how."""

    table: Table
    image: str
    given: str
    text: str


def find_columns(
    tables: Sequence[Table], images: Sequence[str], *, is_chosen: bool = False
) -> tuple[list[Column], list[str]]:
    """Returns the columns beside those that name images, and why tables are not used. Tables of the
    same columns are one; a table that is chosen may name few of the images."""
    found: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
    notes, names = [], _Names(images)
    for table in tables:
        header, *rows = _with_header(table)
        texts = dict(zip(header, zip_longest(*rows, fillvalue=""), strict=False))
        name, named = names.best(texts, table.folder or "")
        if len({*named} - {""}) < (is_chosen or _MIN_SHARE * min(len(rows), len(images)) or 1):
            first = abbreviate([", ".join(row) for row in rows], 1) or "none"
            notes.append(f"{table.file} is not used: its rows, such as {first}, name no images")
            continue
        for other in [other for other in texts if other != name]:
            cells = zip(named, texts[name], texts[other], strict=True)
            key = (*header, other)
            found[key] += [_Row(table, *cell) for cell in cells]
    columns = [_column(name, rows) for (*_, name), rows in found.items()]
    used = [column for column in columns if len({*column.labels.values()}) > 1]
    if columns and not used:
        text = "all images have the same values, or several"
        notes.append(f"{columns[0].files[0]} is not used: {text}")
    return used, notes


def _column(name: str, rows: Sequence[_Row]) -> Column:
    """Returns a column of tables that have the same columns."""
    texts: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        texts[row.image].update([row.text] * bool(row.text))
    labels = {image: min(found) for image, found in texts.items() if image and len(found) == 1}
    lacking = Counter(
        "name no image" if not row.image else "contradict others" if row.text else "lack a label"
        for row in rows
        if row.image not in labels or not row.text
    )
    files = [*dict.fromkeys(row.table.file for row in rows)]
    shown = ", ".join(map(posixpath.basename, files))
    left_out = [f"rows of {shown} that {what}: {count}" for what, count in lacking.items()]
    near = next(filter(None, (_difference(row.given, row.image) for row in rows)), "")
    is_outside = any(row.table.folder is None for row in rows)
    is_wrong = near or lacking["contradict others"] or (is_outside and lacking["name no image"])
    return Column(files, name, labels, near, left_out, has_label_word(name) and not is_wrong)


def _with_header(table: Table) -> list[list[str]]:
    rows = [[*row] for row in table.rows if row[:1] != ["sep="]]  # of Excel
    images = [cell.lower().endswith(EXTENSIONS) for cell in rows[0]] if rows else []
    if any(images):  # the first line is no header
        stem = posixpath.basename(table.file).rpartition(".")[0]
        names = [stem] * 2 if len(images) == 2 else [f"column{n + 1}" for n in range(len(images))]
        named = zip(images, names, strict=True)
        rows.insert(0, ["file" if is_file else name for is_file, name in named])
    return rows or [[]]


class _Names:
    """The names of images: the ends of paths that tell them apart, with or without ending."""

    def __init__(self, images: Iterable[str]) -> None:
        paths = {image: normalize("NFC", image).split("/") for image in images}
        ends: dict[str, str] = {}
        self._depth = 0
        while len({*ends.values()}) < len(paths) and self._depth < max(map(len, paths.values())):
            self._depth += 1
            ends = {image: "/".join(path[-self._depth :]) for image, path in paths.items()}
        self._exact: dict[str, str] = {}
        self._near: dict[str, str] = {}
        for image, end in ends.items():
            for key in (end, end.rpartition(".")[0]):
                self._exact[key] = "" if key in self._exact else image
                self._near[fold(key)] = "" if fold(key) in self._near else image

    def best(self, columns: Mapping[str, Sequence[str]], folder: str) -> tuple[str, Sequence[str]]:
        """Returns the column that names the most images, and the image of each row, or none."""
        best: tuple[tuple[bool, int], str, Sequence[str]] = ((False, 0), "", ())
        for name, texts in columns.items():
            named = self._find(texts, folder)
            has_endings = any(text.lower().endswith(EXTENSIONS) for text in texts)
            # Numbers of rows and of classes can be names without ending.
            is_number = has_label_word(name) or named.count("") > _MIN_SHARE * len(named)
            score = has_endings, len({*named} - {""})
            if score > best[0] and score[1] and (has_endings or not is_number):
                best = (score, name, named)
        return best[1:]

    def _find(self, texts: Sequence[str], folder: str) -> list[str]:
        """Returns the image that each text names, as it is, or else folded without a folder."""
        ends, near = [], []
        for text in texts:
            path = posixpath.normpath(f"{folder}/{text}".strip("/").replace("\\", "/"))
            parts = normalize("NFC", path).split("/")
            ends.append(self._exact.get("/".join(parts[-self._depth :]), ""))
            near.append(self._near.get(fold(path), "") if len(parts) <= self._depth else "")
        # An image that a row names as it is is no other row's.
        named = {*ends}
        return [
            end or (image if image not in named else "")
            for end, image in zip(ends, near, strict=True)
        ]


def _difference(text: str, image: str) -> str:
    """Returns how a text differs from the name of its image, with or without ending."""
    name, file = (normalize("NFC", re.split(r"[\\/]", path)[-1]) for path in (text, image))
    return "" if name in (file, file.rpartition(".")[0]) or not image else f"{text!r} is {image}"


def fold(name: str) -> str:
    """Returns a name without what often differs: case, Unicode form, escapes of URLs, zeros."""
    text = normalize("NFC", unquote(name)).casefold().strip()
    text = re.sub(r"(?<![^/])([0-9]+)\.0$", r"\1", text)  # of pandas
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    return not _LABEL_WORDS.isdisjoint(words(name))


def is_number(text: str) -> bool:
    """Returns whether a label is a number, of 64 bits if it is an integer."""
    is_small = not is_whole(text) or -(1 << 63) <= int(text) < 1 << 63
    return bool(_NUMBER.fullmatch(text)) and is_small


def is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
