"""Readings of a folder of images: which of its folders are parts, and what the label is.

A reading is chosen if the names of the files and the tables beside them allow no other. A folder
that could be a part of the data, or merely divides its files, is never taken for a class.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import normalize

from infeed.shared.errors import SourceError
from infeed_server.storage.files import abbreviate
from infeed_tools.init.listing import UnclearError, common_folder, role, words
from infeed_tools.init.looks import are_numbers, is_number
from infeed_tools.init.parts import Part, fold_name, judge, pair, twins
from infeed_tools.init.tables import Column, Table, find_columns

VALUES = FOLDERS, PATHS, NONE = "folders", "paths", "none"
"""Values of --labels besides tables; --parts takes the first and the last."""


class Tree(NamedTuple):
    """The images below a folder, by paths in it, and the tables in it and beside it."""

    name: str
    images: Sequence[str]
    tables: Sequence[Table] = ()


@dataclass
class Reading:
    """Parts of the data, and their label."""

    options: dict[str, str]
    parts: Sequence[Part]
    label: str
    doubts: list[str]
    """Why another reading may be right."""
    notes: Sequence[str]
    column: Column | None = None

    @property
    def values(self) -> list[str]:
        """The labels of all labelled images."""
        return [text for part in self.parts for text in part.labels.values()]

    @property
    def classes(self) -> list[str]:
        """The names of the labels, by number; empty for numbers or free text in a table."""
        values = [*self.values, *(self.column.known if self.column else ())]
        names = sorted({*values})
        is_table = self.column and not any(part.has_folders for part in self.parts)
        if is_table and (len(names) * 2 > len(values) or all(map(is_number, names))):
            return []
        return sorted(names, key=int) if all(map(str.isdecimal, names)) else names

    def describe(self) -> str:
        """Returns a description of the reading as a choice."""
        parts = [part.folder for part in self.parts if part.folder]
        is_chosen = self.options.get("parts", NONE) != NONE
        text = f"parts: {abbreviate(parts)}; " if is_chosen or len(parts) > 1 else ""
        names, images = sorted({*self.values}), sum(len(part.images) for part in self.parts)
        if not names:
            return f"{text}no label"
        has_both = self.column and any(part.has_folders for part in self.parts)
        label = f"{self.label}{', and the class folder' * bool(has_both)}"
        text += f"label is the {label}, {len(names)} for {len(self.values)} of {images} images"
        near = f", if {self.column.near}" if self.column and self.column.near else ""
        return f"{text}: {abbreviate([name[:20] for name in names], 3)}{near}"


def choose(tree: Tree, parts: str | None = None, labels: str | None = None) -> Reading:
    """Returns the only reading that the options allow. Raises `UnclearError` if there are several,
    and `SourceError` if there is none."""
    structures = _structures(tree.images, parts)
    doubts = [f"{abbreviate([*structures[0][1]])} could be parts of the data"] * (
        len(structures) > 1
    )
    if doubts and _are_crossed(map(posixpath.basename, structures[0][1])):
        doubts.append("folders name parts and classes: move the files to folders like train/cat")
    found = []
    for option, folders in structures:
        given = {"parts": option} if parts or len(structures) > 1 else {}
        found += _readings(tree, folders, given, labels)
    twin = twins(tree.images) if labels is None else ""
    if len(found) == 1 and not twin:
        return found[0]
    if twin:
        doubts.append(
            f"{twin} and others are named like an image's mask: move them out of the folder, or "
            "write a source python for pairs (docs/python-sources.md)"
        )
    doubts += [doubt for reading in found for doubt in reading.doubts]
    reason = "; ".join(dict.fromkeys(doubts)) or "several folders or columns could be the label"
    for reading in [*found]:
        if reading.options["labels"] == FOLDERS and len(reading.parts) == 1:
            found += [choose(tree, folder, NONE) for folder in pair(reading.parts[0])]
    choices = [(reading.options, reading.describe()) for reading in found]
    raise UnclearError(f"{tree.name}: {reason}; choose one", choices)


def _structures(images: Sequence[str], chosen: str | None) -> list[tuple[str, list[str]]]:
    """Returns the ways in which folders can be parts, each a value of --parts and the folders."""
    whole = common_folder(images)
    inner: dict[str, set[str]] = defaultdict(set)
    for path in images:
        top, *below = path.removeprefix(f"{whole}/").split("/")
        if below:
            inner[top].update(map(fold_name, below[:-1][:1]))
    counts = Counter(name for names in inner.values() for name in names)
    # Folders named like parts, or sharing the names of their subfolders.
    found = [top for top in inner if role(top) or sum(counts[name] > 1 for name in inner[top]) > 1]
    roles = {role(top) for top in inner}
    are_roles = "" not in roles and len(roles) > 1 and not _are_crossed(inner)
    is_certain = chosen is not None or are_roles
    if chosen not in (None, NONE):
        found = [*inner] if chosen == FOLDERS else str(chosen).split(",")
        if wrong := [name for name in found if name not in inner]:
            known = abbreviate([*inner], 20) or "no folder of images"
            raise SourceError(f"--parts: {wrong[0]!r} has no images; folders with images: {known}")
    classes = {name for top in found if len(inner[top]) > 1 for name in inner[top]}
    folders = [_without_single(images, posixpath.join(whole, top), classes) for top in found]
    parts = [(",".join(found), folders)]
    if not found or chosen == NONE:
        parts = []
    return parts if parts and is_certain else [*parts, (NONE, [whole])]


def _without_single(images: Sequence[str], folder: str, classes: set[str]) -> str:
    """Returns a part, or the single folder around its class folders, unless that is a class."""
    paths = [path[len(folder) + 1 :] for path in images if path.startswith(f"{folder}/")]
    single = common_folder(paths).split("/")[: min(path.count("/") for path in paths) - 1]
    is_class = not classes.isdisjoint(map(fold_name, single))
    return folder if is_class else posixpath.join(folder, *single).rstrip("/")


def _are_crossed(names: Iterable[str]) -> bool:
    """Returns whether names combine parts with something else: `cat_train`, `cat_test`."""
    roles: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name in names:
        others = tuple(word for word in words(name) if not role(word))
        roles[others].add(role(name))
    return sum(len(found) > 1 for found in roles.values()) > 1


def _readings(
    tree: Tree, folders: Sequence[str], options: Mapping[str, str], labels: str | None
) -> list[Reading]:
    """Returns the possible readings of some parts. Raises `SourceError`."""
    is_table = labels is not None and labels not in VALUES
    columns, unused = find_columns(tree.tables, tree.images, (labels or "") if is_table else "")
    found: dict[str, Reading] = {}
    for value, label in ((FOLDERS, "class folder"), (PATHS, "path of the folder"), (NONE, "none")):
        made = [_part(tree, folder, value) for folder in folders]
        doubts = [*judge(made)] if value != NONE else []
        found[value] = Reading({**options, "labels": value}, made, label, doubts, unused)
    by_folder = found[FOLDERS]
    for column in columns:
        label = f"column {column.name} of {', '.join(map(posixpath.basename, column.files))}"
        made = _with_folders([_part(tree, folder, "", column) for folder in folders], by_folder)
        option = {**options, "labels": column.option}
        reading = Reading(option, made, label, [*column.doubts], (), column)
        reading.doubts += _doubt(reading)
        reading.notes = [*unused, *column.left_out, *reading.doubts]
        found[column.option] = reading
    if labels in VALUES:
        if labels == NONE or found[labels].values:
            return [found[labels]]
        raise SourceError(
            f"--labels {labels}: the images in {tree.name}, such as {tree.images[0]}, are not in "
            "class folders; move them there"
        )
    of_columns = [made for made in found.values() if made.column]
    if labels:
        named = [made for made in of_columns if made.column and made.column.is_named(labels)]
        clear = [made for made in named if made.column and made.column.says_label]
        if not named:
            known = "; ".join([*unused, *(made.options["labels"] for made in of_columns)])
            raise SourceError(f"--labels {labels}: no such column of labels. Found: {known}")
        return clear if len(clear) == 1 else named
    if len({*found[PATHS].values}) > len({*by_folder.values}):
        by_folder.doubts.append("the folders of the images are nested in folders")
    else:
        del found[PATHS]
    clear = [made for made in of_columns if _is_clear(made)]
    if by_folder.values:
        certain = [] if of_columns or by_folder.doubts else [by_folder]
    else:
        certain = clear if of_columns else [found[NONE]] * (PATHS not in found)
    rivals = [made for made in found.values() if made.values]
    return certain if len(certain) == 1 else [*rivals, found[NONE]]


def _part(tree: Tree, folder: str, labels: str, column: Column | None = None) -> Part:
    start = f"{folder}/" if folder else ""
    images = [path.removeprefix(start) for path in tree.images if path.startswith(start)]
    found = {}
    for image in images:
        if column:
            found[image] = column.labels.get(start + image, "")
        elif labels != NONE and "/" in image:
            path = normalize("NFC", image.rpartition("/")[0])
            found[image] = path if labels == PATHS else path.partition("/")[0]
    found = {image: text for image, text in found.items() if text}
    return Part(folder, images, found, labels == FOLDERS)


def _with_folders(parts: Sequence[Part], by_folder: Reading) -> list[Part]:
    """Returns parts with the labels of a table. A part without labels in it takes its class folders
    instead, if the table has one of these classes."""
    names = {name for part in parts for name in part.names}
    return [
        part if part.labels or names.isdisjoint(other.names) else other
        for part, other in zip(parts, by_folder.parts, strict=True)
    ]


def _doubt(reading: Reading) -> Iterator[str]:
    """Yields why the labels of a table may not be labels."""
    if len({*map(fold_name, reading.classes)}) < len(reading.classes):
        yield f"names in the {reading.label} differ only in case, spaces or Unicode form"
    is_varied = len({*reading.values}) > 1
    if is_varied and all(map(are_numbers, reading.values)):
        yield f"the {reading.label} has several numbers for an image, which may not be a class"
    for part in reading.parts:
        if is_varied and len(part.names) == 1 < len(part.labels) and not part.has_folders:
            yield f"all labels of {part.folder} are {min(part.names)!r}, which may mean none"


def _is_clear(reading: Reading) -> bool:
    """Returns whether a column is certainly the label: its name says so, each image of a labelled
    part has a label, and no tables of several parts are joined."""
    column, parts = reading.column, reading.parts
    is_full = all(len(part.labels) in (0, len(part.images)) for part in parts)
    is_joined = column and len({*map(role, column.files)}) > 1 and len(parts) == 1
    is_certain = column and column.says_label and column.is_clear and not reading.doubts
    return bool(is_certain and is_full and not is_joined)
