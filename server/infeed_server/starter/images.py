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
    if not names or any(image.path.partition("/")[0] not in names for image in listing.images):
        return [_draft(folder.name, listing, target, labels)]
    parts = [(f"{folder.name}-{name}", list_images(f"{folder}/{name}")) for name in names]
    return [_draft(name, part, target, labels) for name, part in parts]


def _draft(name: str, listing: ImageListing, target: Path, labels: str | None) -> Draft:
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
    is_part = Path(listing.root).name.lower() in _PARTS
    is_stray = any("/" not in image.path for image in listing.images)
    has_classes = not is_stray and len(listing.folders) > (0 if is_part else 1)
    column = None
    if labels == FOLDERS or (labels is None and has_classes):
        _add_folders(draft, listing)
    elif labels != NONE:
        found = chosen_labels(listing, labels) if labels else find_labels(listing, is_part=is_part)
        column = found if found and found.rows else None
    if column:
        _add_column(draft, column, listing, target)
    elif not draft.label:
        draft.label = f"no label{'; some images are in no class folder' if listing.folders else ''}"
        draft.source.append(comment("labels: labels.csv, with the columns file,label"))
    return draft


def _add_folders(draft: Draft, part: ImageListing) -> None:
    """Labels images with their class folder, if all parts have the same. Raises `SourceError`."""
    classes = labels_from_folders(part).class_names
    _require_same_folders(Path(part.root))
    draft.source.append(line("labels", FOLDERS, "label: the number of the folder, sorted"))
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


def _add_column(draft: Draft, column: Column, listing: ImageListing, target: Path) -> None:
    """Adds the labels of a column, in a CSV of its own unless the source reads it as it is."""
    labels, classes, name = column.labels(), column.classes(), column.file.name
    if not classes and column.is_plain(listing):
        draft.source.append(line("labels", relative(column.file, target), "columns file,label"))
    else:
        path, out = f"{draft.name}{WRITTEN_LABELS}", io.StringIO()
        rows = [
            (image, classes.index(label) if classes else label)
            for image, label in sorted(labels.items())
        ]
        csv.writer(out, lineterminator="\n").writerows([("file", "label"), *rows])
        draft.files[path] = out.getvalue()
        draft.source.append(line("labels", path, f"made from {name}"))
    values = sorted(set(labels.values()), key=lambda text: (len(text), text))
    shown = _numbered(classes) or [value[:40] for value in values]
    draft.label = (
        f"label is the column {column.name} of {name}: {len(shown)} values: {listed(shown)}"
    )
    if left_out := len(column.cells) - len(column.rows):
        draft.about.append(f"{left_out} rows of {name} have no image here, or no label")
    integers = all(value.lstrip("+-").isdecimal() for value in values)
    if not integers and all(map(is_number, values)):
        draft.transforms.append(step("string_to_number", "the CSV has text", field="label"))
    if missing := draft.samples - len(labels):
        draft.on_error = f"{missing} images have no label; others take their places"


def _numbered(classes: Sequence[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(classes)]
