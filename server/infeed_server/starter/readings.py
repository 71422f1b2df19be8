"""Readings of a folder of images: which of its folders are parts, and what the label is.

A reading is taken if the names of the files and the tables beside them allow no other. What could
be a part of the data, or only divides its files, is never taken for a class.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from infeed.shared.errors import SourceError
from infeed_server.starter.class_folders import Part, Reading, number_alike, same_name
from infeed_server.starter.csv_tables import (
    Column,
    Table,
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
            inner.setdefault(top, set()).update(map(same_name, below[:-1][:1]))
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
        number_alike(made)
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
    for made in [none, by_folder, *(made for _, made in columns)]:
        made.notes += notes
    if labels:
        named = [(c, made) for c, made in columns if labels in (*c.files, *c.options)]
        clear = [made for column, made in named if has_label_word(column.name)]
        if named:
            return clear if len(clear) == 1 else [made for _, made in named]
        known = "; ".join([*notes, *(made.options["labels"] for _, made in columns)])
        raise SourceError(f"--labels {labels}: no such column of labels; there is: {known}")
    if not by_folder.values:
        clear = [made for column, made in columns if _is_clear(column, made.parts)]
        return clear if len(clear) == 1 else [*(made for _, made in columns), none]
    same = [column.files for column, made in columns if _agree(made.parts, by_folder.parts)]
    rivals = [made for column, made in columns if column.files not in same]
    is_certain = not by_folder.doubts and not rivals
    return [by_folder] if is_certain else [by_folder, *[by_path] * is_nested, *rivals, none]


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
