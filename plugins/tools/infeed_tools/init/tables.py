"""Tables beside images: columns that may be labels, and the images that their rows name."""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import NamedTuple

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.storage.files import abbreviate
from infeed_tools.init.image_names import (
    MIN_SHARE,
    ImageNames,
    are_parts,
    difference,
    says_label,
)
from infeed_tools.init.listing import role
from infeed_tools.init.looks import is_number


class Table(NamedTuple):
    """A file of CSV or JSON lines."""

    file: str
    rows: Sequence[Sequence[str]]
    """The names of the columns, if given, and the cells of each row."""
    folder: str | None = ""
    """Its folder inside the folder of all images; None if it lies outside."""


@dataclass(frozen=True)
class Column:
    """A column of a table, or of several tables with the same columns."""

    files: Sequence[str]
    names: str
    """The column that names the images."""
    name: str
    labels: Mapping[str, str]
    """The labels by image."""
    near: str
    """How the rows' names of images differ from the files' names, if at all."""
    left_out: Sequence[str]
    """Notes on rows left out."""
    is_clear: bool
    """Whether each row names one image, with one label."""
    says_label: bool
    """Whether its name says that it is the label."""
    known: Sequence[str] = ()
    """The labels in all tables with the same columns, which number a class alike."""
    doubts: Sequence[str] = ()
    """Why it may not be the label of a single part."""

    is_mixed: bool = False
    """Whether the labels are numbers in some tables and words in others."""
    is_named_surely: bool = True
    """Whether no other column could be the one that names the images."""

    @property
    def option(self) -> str:
        """The value of --labels for it."""
        return self._options[1 if self.is_named_surely else 2]

    def is_named(self, option: str) -> bool:
        """Returns whether a value of --labels names it, or only its files."""
        return option in self._options

    @property
    def _options(self) -> Sequence[str]:
        files = ",".join(self.files)
        return files, f"{files}:{self.name}", f"{files}:{self.names}:{self.name}"


class _Row(NamedTuple):
    """A cell of a column, with the image that its row names, if any, and how it names it."""

    table: Table
    image: str
    given: str
    text: str
    condition: str
    """The condition under which the image is right; empty if it is certain."""


@dataclass
class _Group:
    """A column beside one that names images, in all tables with the same columns."""

    names: str
    name: str
    rivals: Sequence[str]
    """Other columns that could name the images."""
    is_certain: bool
    beside: Mapping[str, Sequence[str]]
    """The remaining columns."""
    rows: list[_Row] = field(default_factory=list)


def find_columns(
    tables: Sequence[Table], images: Sequence[str], chosen: str = ""
) -> tuple[list[Column], list[str]]:
    """Returns the columns beside those that name images, and why tables are not used. Tables with
    the same columns are joined; if they are parts, contradict each other or are chosen, each also
    counts alone. If a value of --labels is chosen, tables may name few of the images."""
    groups, notes = _groups(tables, ImageNames(images), chosen)
    columns = []
    for group in groups:
        by_file, constant = _by_file(group.rows)
        for file, text in constant.items():
            notes.append(f"column {group.name} of {file} is not used: it is {text!r} in all rows")
        joined = _joined(group, by_file)
        alone = [_column(group, own) for own in by_file.values()] if len(by_file) > 1 else []
        if is_torn := any(column.labels.keys() - joined.labels.keys() for column in alone):
            doubt = f"{' and '.join(map(posixpath.basename, by_file))} contradict each other"
            joined = replace(joined, doubts=[*joined.doubts, doubt])
        known = [] if joined.is_mixed else [row.text for row in group.rows if row.text]
        alone = [_alone(joined, column, known) for column in alone]
        are_apart = is_torn or len({*map(role, by_file)}) > 1
        columns += [joined, *(one for one in alone if are_apart or one.is_named(chosen))]
    used = [column for column in columns if len({*column.labels.values()}) > 1]
    if columns and not used:
        text = "all images have the same value, or several values"
        notes.append(f"{columns[0].files[0]} is not used: {text}")
    return used, notes


def _groups(
    tables: Sequence[Table], names: ImageNames, chosen: str
) -> tuple[list[_Group], list[str]]:
    """Returns the groups of all tables, for each way of reading that is possible or chosen, and why
    tables are not used."""
    groups: dict[tuple[str, ...], _Group] = {}
    notes = []
    for table in tables:
        lines = [row for row in table.rows if row[:1] != ["sep="]]  # which Excel writes
        header, *rows = _with_header(table.file, lines)
        if lines and len(header) > len(lines[0]):
            title = ", ".join(lines[0])
            notes.append(f"{table.file}: its first line has fewer columns than its rows: {title}")
        texts = dict(zip(header, zip_longest(*rows, fillvalue=""), strict=False))
        least = 0 if chosen else MIN_SHARE
        ways, is_certain = names.ways(table.file, texts, table.folder or "", least)
        if not ways or len(header) == 1:
            first = abbreviate([", ".join(row) for row in rows], 1) or "none"
            problem = "hold only names" if ways else names.problem(texts, table.folder or "")
            notes.append(f"{table.file} is not used: its rows, such as {first}, {problem}")
        naming = [way.column for way in ways]
        for way in ways:
            of_names = {*naming, *(text for text in texts if way.given and are_parts(texts[text]))}
            others = [text for text in texts if text not in of_names]
            is_first = is_certain and way is ways[0]
            for other in others or [text for text in texts if text != way.column]:
                if is_certain and not is_first and not chosen.endswith(f":{way.column}:{other}"):
                    continue
                beside = {text: texts[text] for text in others if text != other}
                rivals = [name for name in naming if name != way.column]
                group = _Group(way.column, other, rivals, is_first, beside)
                group = groups.setdefault((*header, way.column, other), group)
                group.is_certain &= is_first
                cells = zip(way.images, texts[way.column], texts[other], strict=True)
                group.rows += [_Row(table, *cell, way.given) for cell in cells]
    return [*groups.values()], notes


def _by_file(rows: Iterable[_Row]) -> tuple[dict[str, list[_Row]], dict[str, str]]:
    """Returns the rows of a column by file, and the only value in each file that is left out: if
    other files have several values, a single one is a placeholder, as in a sample submission."""
    files: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        files[row.table.file].append(row)
    values = {file: {row.text for row in own} for file, own in files.items()}
    constant = {file: min(found) for file, found in values.items() if len(found) == 1}
    constant = constant if len(constant) < len(files) else {}  # each file may hold one class
    return {file: own for file, own in files.items() if file not in constant}, constant


def _joined(group: _Group, files: Mapping[str, Sequence[_Row]]) -> Column:
    """Returns a column of several tables with the same columns."""
    column = _column(group, [row for rows in files.values() for row in rows])
    shown = ", ".join(map(posixpath.basename, files))
    notes = [f"not used: columns of {shown}: {abbreviate([*group.beside])}"] * bool(group.beside)
    doubts = [
        f"{text} of {shown} could name parts of the data, which init cannot divide"
        for text, cells in group.beside.items()
        if are_parts(cells)
    ]
    if group.rivals:
        rivals = f"not {' or '.join(group.rivals)}"
        notes.append(f"column {group.names} names the images in {shown}, {rivals}")
    are_numbers = [{is_number(row.text) for row in rows if row.text} for rows in files.values()]
    if is_mixed := {True} in are_numbers and {False} in are_numbers:
        doubts.append(f"{group.name} has numbers in some of {shown} and words in others")
    if not group.is_certain:
        named = " or ".join(sorted([group.names, *group.rivals]))
        doubts.append(f"{named} could name the images in {shown}")
    return replace(column, left_out=[*column.left_out, *notes], doubts=doubts, is_mixed=is_mixed)


def _alone(joined: Column, column: Column, known: Sequence[str]) -> Column:
    """Returns the column of a single table, with its classes numbered as in all tables."""
    shown = ", ".join(map(posixpath.basename, joined.files))
    note = [f"classes are numbered across {shown}"] * bool(known)
    left_out = [*column.left_out, *note]
    return replace(column, left_out=left_out, doubts=joined.doubts, known=known, is_clear=False)


def _column(group: _Group, rows: Sequence[_Row]) -> Column:
    """Returns the column with these rows."""
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
    name, names = group.name, group.names
    rival = [f"column {names} names the images"] * (not group.is_certain)
    conditions = (row.condition or difference(row.given, row.image) for row in rows)
    near = next(filter(None, chain(rival, conditions)), "")
    is_outside = any(row.table.folder is None for row in rows)
    is_wrong = near or lacking["contradict others"] or (is_outside and lacking["name no image"])
    says = says_label(name, group.beside)
    column = Column(files, names, name, labels, near, left_out, not is_wrong, says)
    return replace(column, is_named_surely=group.is_certain)


def _with_header(file: str, lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the names of all columns with cells, made up if missing, and the rows."""
    rows = [[*row] for row in lines]
    width = max((n for row in rows for n, cell in enumerate(row, 1) if cell), default=0)
    first = [*chain(*rows[:1]), *[""] * width][:width]
    rows[:1] = [[cell or f"column{n}" for n, cell in enumerate(first, 1)]]
    images = [cell.lower().endswith(EXTENSIONS) for cell in rows[0]]
    if any(images):  # the first line is no header
        stem = posixpath.basename(file).rpartition(".")[0]
        names = [stem] * 2 if len(images) == 2 else [f"column{n + 1}" for n in range(len(images))]
        named = zip(images, names, strict=True)
        rows.insert(0, ["file" if is_file else name for is_file, name in named])
    return rows
