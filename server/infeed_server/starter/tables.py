"""Tables beside images: columns that could be labels, and the images that their rows name."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_server.starter.listing import words
from infeed_server.storage.files import abbreviate

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


def find_columns(
    tables: Sequence[Table], images: Sequence[str], *, is_chosen: bool = False
) -> tuple[list[Column], list[str]]:
    """Returns the columns beside those that name images, and why tables are not used. Tables of the
    same columns are one; a table that is chosen may name few of the images."""
    groups: dict[tuple[str, ...], list[tuple[Table, str, Sequence[str]]]] = defaultdict(list)
    for table in tables:
        header, *below = _with_header(table)
        groups[tuple(header)] += [(table, table.folder or "", row) for row in below]
    columns, notes = [], []
    for names, rows in groups.items():
        files = [*dict.fromkeys(table.file for table, _, _ in rows)]
        cells = zip_longest(*(row for _, _, row in rows), fillvalue="")
        texts = dict(zip(names, cells, strict=False))
        name, named = _named_by(texts, [folder for _, folder, _ in rows], images)
        if len({*named} - {""}) < (is_chosen or _MIN_SHARE * min(len(rows), len(images))):
            first = abbreviate([", ".join(row) for _, _, row in rows], 1)
            notes.append(f"{files[0]} is not used: its rows, such as {first}, name no images")
            continue
        is_outside = any(table.folder is None for table, _, _ in rows)
        others = [other for other in texts if other != name]
        made = [_column(n, files, texts[name], named, texts[n], is_outside) for n in others]
        columns += [column for column in made if len({*column.labels.values()}) > 1]
        if not any(len({*column.labels.values()}) > 1 for column in made):
            notes.append(f"{files[0]} is not used: all images have the same values, or several")
    return columns, notes


def _with_header(table: Table) -> list[list[str]]:
    rows = [[*row] for row in table.rows if row[:1] != ["sep="]]  # of Excel
    images = [cell.lower().endswith(EXTENSIONS) for cell in rows[0]] if rows else []
    if any(images):  # the first line is no header
        stem = posixpath.basename(table.file).rpartition(".")[0]
        names = [stem] * 2 if len(images) == 2 else [f"column{n + 1}" for n in range(len(images))]
        named = zip(images, names, strict=True)
        rows.insert(0, ["file" if is_file else name for is_file, name in named])
    return rows or [[]]


def _named_by(
    texts: Mapping[str, Sequence[str]], folders: Sequence[str], images: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """Returns the column that names the most images, and the image of each row, or none. Names are
    the ends of paths that tell the images apart, with or without ending."""
    paths = {image: fold(image).split("/") for image in images}
    ends: dict[str, str] = {}
    depth = 0
    while len({*ends.values()}) < len(paths) and depth < max(map(len, paths.values())):
        depth += 1
        ends = {image: "/".join(path[-depth:]) for image, path in paths.items()}
    known: dict[str, str] = {}
    for image, end in ends.items():
        for key in {end, end.rpartition(".")[0]}:
            known[key] = "" if key in known else image
    best: tuple[tuple[bool, int], str, Sequence[str]] = ((False, 0), "", ())
    for name, cells in texts.items():
        given = (
            f"{folder}/{cell}".replace("\\", "/")
            for folder, cell in zip(folders, cells, strict=True)
        )
        parts = (fold(posixpath.normpath(path)).split("/") for path in given)
        named = [known.get("/".join(part[-depth:]), "") for part in parts]
        has_endings = any(text.lower().endswith(EXTENSIONS) for text in cells)
        # Numbers of rows and of classes can be names without ending.
        is_number = has_label_word(name) or named.count("") > _MIN_SHARE * len(named)
        score = has_endings, len({*named} - {""})
        if score > best[0] and score[1] and (has_endings or not is_number):
            best = (score, name, named)
    return best[1:]


def _column(
    name: str,
    files: Sequence[str],
    given: Sequence[str],
    named: Sequence[str],
    texts: Sequence[str],
    is_outside: bool,
) -> Column:
    """Returns a column of tables whose rows name images, as they are given."""
    pairs = [(image, text) for image, text in zip(named, texts, strict=True) if image and text]
    counts = Counter(image for image, _ in {*pairs})
    labels = {image: text for image, text in pairs if counts[image] == 1}
    lacking = {
        "name no image": named.count(""),
        "lack a label": len(named) - named.count("") - len(pairs),
        "contradict others": sum(counts[image] > 1 for image, _ in pairs),
    }
    shown = ", ".join(map(posixpath.basename, files))
    left_out = [f"rows of {shown} that {what}: {count}" for what, count in lacking.items() if count]
    near = next(filter(None, map(_difference, given, named)), "")
    is_wrong = near or lacking["contradict others"] or (is_outside and lacking["name no image"])
    return Column(files, name, labels, near, left_out, has_label_word(name) and not is_wrong)


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
