"""Starters for images: class folders, or one flat folder, each with its parts for training."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.labels import labels_from_folders
from infeed_server.sources.images.listing import ImageListing, list_images
from infeed_server.starter.draft import (
    WRITTEN_LABELS,
    Draft,
    comment,
    line,
    listed,
    pipeline_name,
    relative,
    step,
)
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.labels import (
    FOLDERS,
    NONE,
    Column,
    chosen_labels,
    find_labels,
    is_number,
)

_PARTS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
"""Names of folders that are parts of a data set, not classes."""


def image_drafts(folder: Path, target: Path, labels: str | None) -> list[Draft]:
    """Returns a draft for each part of a folder of images, with these labels if they are given.

    Raises `SourceError`, and `UnclearLabelsError` where the label must be chosen.
    """
    listing = list_images(str(folder))
    names = [name for name in listing.folders if name.lower() in _PARTS]
    parts = {"": listing}
    if names and all(image.path.partition("/")[0] in names for image in listing.images):
        parts = {f"{name}/": list_images(f"{folder}/{name}") for name in names}
    by_folder = {
        prefix: labels == FOLDERS or (labels is None and _has_classes(part))
        for prefix, part in parts.items()
    }
    column = None
    if labels is None and not all(by_folder.values()):
        column = find_labels(listing, is_split=len(parts) > 1)
    elif labels not in (None, FOLDERS, NONE):
        column = chosen_labels(listing, labels or "")
    drafts = []
    for prefix, part in parts.items():
        draft = _draft(f"{folder.name}-{prefix}", part, target)
        if by_folder[prefix]:
            _add_folders(draft, part)
        elif column and any(image.startswith(prefix) for image, _ in column.cells):
            _add_column(draft, column, prefix, None if prefix else part, target)
        else:
            stray = "; some images are in no class folder" if part.folders else ""
            draft.label = f"no label{stray}"
            draft.source.append(comment("labels: labels.csv, with the columns file,label"))
        drafts.append(draft)
    return drafts


def _has_classes(part: ImageListing) -> bool:
    least = 1 if Path(part.root).name.lower() in _PARTS else 2
    return len(part.folders) >= least and all("/" in image.path for image in part.images)


def _draft(name: str, listing: ImageListing, target: Path) -> Draft:
    paths = [f"{listing.root}/{image.path}" for image in listing.images]
    chosen = [paths[index] for index in spread(len(paths))]
    look = ImageLook.at(chosen)
    if look is None:
        problem = f"none of {len(chosen)} images can be opened, such as {chosen[0]}"
        raise SourceError(f"{listing.root!r}: {problem}", file=listing.root)
    about = [f"{len(paths)} images; of {len(chosen)} looked at: {look.describe()}"]
    source = [line("images", relative(listing.root, target))]
    draft = Draft(pipeline_name(name), about, source, len(paths))
    look.suggest(draft, "image")
    return draft


def _add_folders(draft: Draft, part: ImageListing) -> None:
    """Labels images with their class folder, if all parts have the same. Raises `SourceError`."""
    labels = labels_from_folders(part)
    _require_same_folders(Path(part.root))
    draft.source.append(line("labels", FOLDERS, "label: the number of the folder, sorted"))
    classes = labels.class_names
    draft.label = f"label is the class folder: {len(classes)} classes: {listed(_numbered(classes))}"


def _require_same_folders(part: Path) -> None:
    """Raises `SourceError` if another part has other class folders, so other numbers for them.

    A part without folders has no labels, and does not count.
    """
    parts = [path for path in sorted(part.parent.iterdir()) if path.name.lower() in _PARTS]
    found = {path: {folder.name for folder in path.glob("[!.]*/")} for path in parts}
    names = {name for folders in found.values() for name in folders}
    missing = [f"{path}/{name}" for path in parts for name in sorted(names - found[path])]
    missing = [path for path in missing if found[Path(path).parent]]
    if missing and part in parts:
        raise SourceError(
            f"{part}: the class folders are numbered, but not all parts have the same; make the "
            f"empty ones: mkdir {shlex.join(missing)}",
            file=part,
        )


def _add_column(
    draft: Draft, column: Column, prefix: str, whole: ImageListing | None, target: Path
) -> None:
    """Adds the labels of a column, in a CSV of its own unless the source reads it as it is.

    `whole` has the images, if they are not a part of the data.
    """
    classes, name = column.classes(), column.file.name
    found = {image: label for image, label in column.labels().items() if image.startswith(prefix)}
    if whole and not classes and column.is_plain(whole):
        draft.source.append(line("labels", relative(column.file, target), "columns file,label"))
    else:
        path, out = f"{draft.name}{WRITTEN_LABELS}", io.StringIO()
        # Text that repeats is a class. Its number is that in the whole CSV, the same in all parts.
        rows = [
            (image.removeprefix(prefix), classes.index(label) if classes else label)
            for image, label in sorted(found.items())
        ]
        csv.writer(out, lineterminator="\n").writerows([("file", "label"), *rows])
        draft.files[path] = out.getvalue()
        draft.source.append(line("labels", path, f"made from {name}"))
    values = sorted(set(found.values()), key=lambda text: (len(text), text))
    shown = listed([value[:40] for value in _numbered(classes) or values])
    draft.label = f"label is the column {column.name} of {name}: {len(values)} values: {shown}"
    if column.left_out:
        draft.about.append(f"{column.left_out} rows of {name} have no image here, or no label")
    if not classes and all(map(is_number, values)) and not all(map(_is_integer, values)):
        draft.transforms.append(step("string_to_number", "the CSV has text", field="label"))
    if missing := draft.samples - len(found):
        draft.on_error = f"{missing} images have no label; others take their places"


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def _numbered(classes: Sequence[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(classes)]
