"""Tables beside images: columns that could be labels, and the images that their rows name."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.storage.files import abbreviate
from infeed_tools.init.image_names import MIN_SHARE, ImageNames, difference, has_label_word
from infeed_tools.init.listing import role

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A number as TensorFlow reads it, which takes neither `1_000` nor Python's other forms."""


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
    known: Sequence[str] = ()
    """The labels of all tables that have the same columns: a class has one number in them."""
    doubts: Sequence[str] = ()
    """Why it may be no label of one part."""

    @property
    def option(self) -> str:
        """The value of --labels that names it."""
        return f"{','.join(self.files)}:{self.name}"

    def is_named(self, option: str) -> bool:
        """Returns whether a value of --labels names it, or its files alone."""
        return option in (self.option, ",".join(self.files))


class _Row(NamedTuple):
    """A cell of a column: the image that its row names, or none, and how."""

    table: Table
    image: str
    given: str
    text: str


def find_columns(
    tables: Sequence[Table], images: Sequence[str], chosen: str = ""
) -> tuple[list[Column], list[str]]:
    """Returns the columns beside those that name images, and why tables are not used. Tables of the
    same columns are one; if some are parts, or chosen, each is one too. Where a value of --labels
    is chosen, tables may name few of the images."""
    found: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
    beside: dict[tuple[str, ...], dict[str, Sequence[str]]] = {}
    notes, names = [], ImageNames(images)
    for table in tables:
        header, *rows = _with_header(table)
        texts = dict(zip(header, zip_longest(*rows, fillvalue=""), strict=False))
        name, named = names.best(texts, table.folder or "")
        if len({*named} - {""}) < (bool(chosen) or MIN_SHARE * min(len(rows), len(images)) or 1):
            first = abbreviate([", ".join(row) for row in rows], 1) or "none"
            notes.append(f"{table.file} is not used: its rows, such as {first}, name no images")
            continue
        for other in [other for other in texts if other != name]:
            cells = zip(named, texts[name], texts[other], strict=True)
            key = (*header, other)
            found[key] += [_Row(table, *cell) for cell in cells]
            beside[key] = {text: texts[text] for text in texts if text not in ("", name, other)}
    columns = []
    for key, rows_of_all in found.items():
        by_file, constant = _by_file(rows_of_all)
        for file, text in constant.items():
            notes.append(f"column {key[-1]} of {file} is not used: all its rows have {text!r}")
        joined = _joined(key[-1], by_file, beside[key])
        columns.append(joined)
        if len(by_file) > 1:
            are_parts = len({*map(role, by_file)}) > 1
            known = [row.text for own in by_file.values() for row in own if row.text]
            columns += [
                _alone(joined, own, known)
                for file, own in by_file.items()
                if are_parts or chosen in (file, f"{file}:{key[-1]}")
            ]
    used = [column for column in columns if len({*column.labels.values()}) > 1]
    if columns and not used:
        text = "all images have the same values, or several"
        notes.append(f"{columns[0].files[0]} is not used: {text}")
    return used, notes


def _by_file(rows: Iterable[_Row]) -> tuple[dict[str, list[_Row]], dict[str, str]]:
    """Returns the rows of a column by file, and the only value of each file that is left out: where
    others have several values, it fills the place of a label, as in a sample of a submission."""
    files: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        files[row.table.file].append(row)
    values = {file: {row.text for row in own} for file, own in files.items()}
    constant = {file: min(found) for file, found in values.items() if len(found) == 1}
    constant = constant if len(constant) < len(files) else {}  # each could be of one class
    return {file: own for file, own in files.items() if file not in constant}, constant


def _joined(
    name: str, files: Mapping[str, Sequence[_Row]], beside: Mapping[str, Sequence[str]]
) -> Column:
    """Returns a column of tables that have the same columns."""
    column = _column(name, [row for rows in files.values() for row in rows])
    shown = ", ".join(map(posixpath.basename, files))
    not_used = [f"not used: columns of {shown}: {abbreviate([*beside])}"] * bool(beside)
    doubts = [
        f"{text} of {shown} could be parts of the data, which init does not divide"
        for text, cells in beside.items()
        if _are_parts(cells)
    ]
    return replace(column, left_out=[*column.left_out, *not_used], doubts=doubts)


def _alone(joined: Column, rows: Sequence[_Row], known: Sequence[str]) -> Column:
    """Returns the column of one of the tables, whose classes are numbered as in all of them."""
    column = _column(joined.name, rows)
    note = f"classes are numbered as in all of {', '.join(map(posixpath.basename, joined.files))}"
    left_out = [*column.left_out, note]
    return replace(column, left_out=left_out, doubts=joined.doubts, known=known, is_clear=False)


def _are_parts(cells: Sequence[str]) -> bool:
    """Returns whether cells name parts of the data, such as `train` and `test`."""
    values = {*cells} - {""}
    return 1 < len(values) <= len(cells) / 2 and all(map(role, values))


def _column(name: str, rows: Sequence[_Row]) -> Column:
    """Returns the column that has these rows."""
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
    near = next(filter(None, (difference(row.given, row.image) for row in rows)), "")
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


def is_number(text: str) -> bool:
    """Returns whether a label is a number, of 64 bits if it is an integer."""
    is_small = not is_whole(text) or -(1 << 63) <= int(text) < 1 << 63
    return bool(_NUMBER.fullmatch(text)) and is_small


def is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
