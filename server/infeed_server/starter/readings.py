"""Readings of a folder of images: which of its folders are parts, and what the label is.

A reading is taken if the names of the files and the tables beside them allow no other. What could
be a part of the data, or only divides its files, is never taken for a class.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from unicodedata import normalize

from infeed.shared.errors import SourceError
from infeed_server.starter.csv_tables import (
    Column,
    Table,
    classes_of,
    find_columns,
    fold,
    has_label_word,
)
from infeed_server.starter.listing import UnclearError, role
from infeed_server.storage.files import abbreviate

VALUES = FOLDERS, PATHS, NONE = "folders", "paths", "none"
"""Values of --labels, beside tables; --parts has the first and the last."""


class Tree(NamedTuple):
    """The images below a folder, by their paths in it, and the tables in it and beside it."""

    name: str
    images: Sequence[str]
    tables: Sequence[Table] = ()


@dataclass
class Part:
    """A folder below the tree's, empty for all of it; images and their labels by paths in it."""

    folder: str
    images: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return {*self.labels.values()}


@dataclass
class Reading:
    """Parts, and what their label is."""

    options: dict[str, str]
    parts: Sequence[Part]
    label: str
    column: Column | None = None
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        """The labels of all images that have one."""
        return [text for part in self.parts for text in part.labels.values()]

    @property
    def classes(self) -> list[str]:
        """The names of the labels, by number; none for values that are no classes."""
        if self.column:
            return classes_of(self.values)
        names = sorted({*self.values})
        return sorted(names, key=int) if all(map(str.isdecimal, names)) else names

    def describe(self) -> str:
        """Returns the reading as a choice."""
        parts = [part.folder for part in self.parts if part.folder]
        text = f"parts: {abbreviate(parts)}; " if len(parts) > 1 else ""
        if not self.values:
            return f"{text}no label"
        names, images = sorted({*self.values}), sum(len(part.images) for part in self.parts)
        text += f"label is the {self.label}, {len(names)} for {len(self.values)} of {images} images"
        near = f", if {self.column.near}" if self.column and self.column.near else ""
        return f"{text}: {abbreviate([name[:20] for name in names], 3)}{near}"


def choose(tree: Tree, parts: str | None = None, labels: str | None = None) -> Reading:
    """Returns the only reading that the options allow. Raises `UnclearError` if there are several,
    and `SourceError` if there is none."""
    structures = _structures(tree.images, parts)
    found = [
        reading
        for option, folders in structures
        for reading in _readings(tree, folders, labels, option if len(structures) > 1 else parts)
    ]
    if len(found) == 1:
        if left := len(tree.images) - sum(len(part.images) for part in found[0].parts):
            found[0].notes.append(f"left out: {left} images, which are in no part")
        return found[0]
    doubts = [f"{abbreviate(structures[0][1])} could be parts of the data"] * (len(structures) > 1)
    doubts += dict.fromkeys(doubt for reading in found for doubt in reading.doubts)
    reason = "; ".join(doubts) or "it is not certain which folders or column are the label"
    choices = [(reading.options, reading.describe()) for reading in found]
    raise UnclearError(f"{tree.name}: {reason}; choose one", choices)


def _structures(images: Sequence[str], chosen: str | None) -> list[tuple[str, list[str]]]:
    """Returns the ways in which folders can be parts: the value of --parts, and the folders."""
    whole = common_folder(images)
    inner: dict[str, set[str]] = {}
    for path in images:
        top, *below = path.removeprefix(f"{whole}/").split("/")
        if below:
            inner.setdefault(top, set()).update(map(_same, below[:-1][:1]))
    counts = Counter(name for names in inner.values() for name in names)
    # Folders that share the names of their subfolders, or are named like parts.
    alike = {top for top, names in inner.items() if sum(counts[name] > 1 for name in names) > 1}
    found = [top for top in inner if top in alike or role(top)]
    roles = {role(top) for top in inner}
    if chosen not in (None, NONE):
        found = [*inner] if chosen == FOLDERS else str(chosen).split(",")
        if wrong := [name for name in found if name not in inner]:
            known = abbreviate([*inner], 20) or "no folder of images"
            raise SourceError(f"--parts: there are no images in {wrong[0]!r}; there is: {known}")
    elif not found or chosen == NONE:
        return [(NONE, [whole])]
    parts = [(",".join(found), [posixpath.join(whole, top) for top in found])]
    is_certain = chosen is not None or ("" not in roles and len(roles) > 1)
    return parts if is_certain else [*parts, (NONE, [whole])]


def common_folder(paths: Sequence[str]) -> str:
    """Returns the deepest folder that has all files below it."""
    folders = {path.rpartition("/")[0] for path in paths}
    parts = [folder.split("/") for folder in folders]
    return "/".join(os.path.commonprefix(parts))  # noqa: RUF071 - of lists


def _readings(
    tree: Tree, folders: Sequence[str], labels: str | None, parts: str | None
) -> list[Reading]:
    """Returns the readings of some parts, one of which is true. Raises `SourceError`."""

    def reading(value: str, label: str, of: Callable[[str], str], deep: bool = True) -> Reading:
        found = []
        for folder in folders:
            start = f"{folder}/" if folder else ""
            images = [path for path in tree.images if path.startswith(start)]
            names = [path[len(start) :] for path in images]
            texts = [of(name if deep else path) for path, name in zip(images, names, strict=True)]
            labels = {name: text for name, text in zip(names, texts, strict=True) if text}
            found.append(Part(folder, names, labels))
        return Reading({**({"parts": parts} if parts else {}), "labels": value}, found, label)

    def of_column(column: Column) -> Reading:
        files = ", ".join(map(posixpath.basename, column.files))
        option, label = f"{column.files[0]}:{column.name}", f"column {column.name} of {files}"
        made = reading(option, label, lambda path: column.labels.get(path, ""), deep=False)
        made.column, lacks = column, column.left_out.items()
        made.notes += [f"rows of {files} that lack {lack}: {n}" for lack, n in lacks if n]
        return made

    by_folder = reading(FOLDERS, "class folder", lambda n: n.partition("/")[0] * ("/" in n))
    by_path = reading(PATHS, "path of the folder", lambda n: n.rpartition("/")[0])
    none = reading(NONE, "none", lambda _: "")
    is_nested = len({*by_path.values}) > len({*by_folder.values})
    for made in [by_folder, by_path] if is_nested else [by_folder]:
        _number_alike(made)
    by_folder.doubts += ["the folders of the images are nested in folders"] * is_nested
    if labels in VALUES:
        made = {FOLDERS: by_folder, PATHS: by_path if is_nested else by_folder, NONE: none}[labels]
        if labels == NONE or made.values:
            return [made]
        raise SourceError(
            f"--labels {labels}: the images below {tree.name} are in no class folders, such as "
            f"{tree.images[0]}; move them"
        )
    found, notes = find_columns(tree.tables, tree.images, tree.name, labels or "")
    columns = [(column, of_column(column)) for column in found]
    if labels:
        named = [(c, made) for c, made in columns if labels in (*c.files, *c.options)]
        clear = [made for column, made in named if has_label_word(column.name)]
        if named:
            return clear if len(clear) == 1 else [made for _, made in named]
        known = "; ".join([*notes, *(made.options["labels"] for _, made in columns)])
        raise SourceError(f"--labels {labels}: no such column of labels; there is: {known}")
    none.notes += notes
    by_folder.notes += notes
    if not by_folder.values:
        clear = [made for column, made in columns if _is_clear(column, made.parts)]
        return clear if len(clear) == 1 else [*(made for _, made in columns), none]
    same = [column.files for column, made in columns if _agree(made.parts, by_folder.parts)]
    rivals = [made for column, made in columns if column.files not in same]
    is_certain = not by_folder.doubts and not rivals
    return [by_folder] if is_certain else [by_folder, *[by_path] * is_nested, *rivals, none]


def _number_alike(reading: Reading) -> None:
    """Gives the classes of all parts the names that the part with most of them has, and notes why
    the folders may be no classes."""
    doubts = reading.doubts
    first = max(reading.parts, key=lambda part: len(part.names))
    known = {_same(name): name for name in sorted(first.names, reverse=True)}
    if len(first.names) > len(known):
        doubts.append("names of folders differ in case, spaces or Unicode form only")
        known = {}
    for part in reading.parts:
        names = {name: known.get(_same(name), name) for name in sorted(part.names)}
        is_other = first.names.isdisjoint(names.values())
        if len(first.names) < 2 or (is_other and len(names) < 2):
            part.labels = {}
            if len(first.names) > 1:
                where = f"in no class folder, such as {part.images[0]}"
                reading.notes.append(f"{part.folder} has no label: its images are {where}")
            continue
        if is_other:
            doubts.append(f"{part.folder} has no class folder of {first.folder}")
        if loose := [image for image in part.images if image not in part.labels]:
            doubts.append(f"{len(loose)} images are in no class folder, such as {loose[0]}")
        if renamed := [f"{old!r} as {new!r}" for old, new in names.items() if old != new]:
            reading.notes.append(f"{part.folder} is numbered alike: {abbreviate(renamed)}")
        part.labels = {image: names[name] for image, name in part.labels.items()}
    doubts += _doubts(first)


def _doubts(part: Part) -> Iterator[str]:
    """Yields why the folders of a part may be no classes."""
    if like := [name for name in sorted(part.names) if role(name)]:
        yield f"{abbreviate(like)} could be parts of the data"
    matches = [re.fullmatch(r"(.*[a-zA-Z].*?)(\d+)", name) for name in part.names]
    numbered = [(match[1], int(match[2])) for match in matches if match]
    numbers = sorted(number for _, number in numbered)
    is_alike = len(numbered) == len(matches) > 1 and len({prefix for prefix, _ in numbered}) == 1
    if is_alike and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        yield f"folders numbered as {min(part.names)} could only divide the files"
    files: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in part.names}
    for image, name in part.labels.items():
        for known, text in zip(
            files[name], posixpath.splitext(posixpath.basename(image)), strict=True
        ):
            known.add(text)
    ordered = sorted(files.items(), key=lambda item: len(item[1][0]))
    is_same = len({frozenset(stems) for stems, _ in files.values()}) == 1 < len(files)
    for (one, (stems, endings)), (other, (more, others)) in pairwise(ordered):
        if is_same or (stems <= more and endings.isdisjoint(others)):
            yield f"files in {one} and {other} have the same names, as images and their masks"
            return


@cache
def _same(name: str) -> str:
    return normalize("NFC", name).casefold().strip()


def _agree(columns: Sequence[Part], folders: Sequence[Part]) -> bool:
    """Returns whether a column names the folders of its images."""
    return all(
        fold(folder.labels.get(image, text)) == fold(text)
        for folder, column in zip(folders, columns, strict=True)
        for image, text in column.labels.items()
    )


def _is_clear(column: Column, parts: Sequence[Part]) -> bool:
    """Returns whether a column is the label without doubt: it says so, each image of a labelled
    part has one label, and tables of several parts are not joined."""
    lacking = column.left_out["the label of an earlier row"] + bool(column.near)
    lacking += column.left_out["an image"] * column.is_outside
    lacking += sum(len(part.labels) not in (0, len(part.images)) for part in parts)
    is_joined = len({*map(role, column.files)}) > 1 and len(parts) == 1
    return has_label_word(column.name) and not lacking and not is_joined
