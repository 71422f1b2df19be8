"""Drafts for a folder of images: what its only reading says, or the user's options."""

from __future__ import annotations

import csv
import glob
import io
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.sources.images.table import read_csv, read_json_lines
from infeed_server.starter.class_folders import Part, Reading
from infeed_server.starter.csv_tables import Table, is_fraction, is_number_text
from infeed_server.starter.draft import Draft
from infeed_server.starter.listing import pipeline_name, relative, role, spread, unused
from infeed_server.starter.looks import ImageLook
from infeed_server.starter.readings import (
    FOLDERS,
    VALUES,
    Tree,
    choose,
    common_folder,
)
from infeed_server.storage.files import absolute_path, expand_globs, is_file

_EXAMPLES = 5
_TABLES = (".csv", ".tsv", ".jsonl")
_WRITTEN = "-labels.infeed.csv"
"""The end of the name of a CSV of labels that `init` writes, so that it is not taken for one of the
user's, nor one of the user's for it."""


def image_drafts(
    root: str, files: Sequence[str], target: Path, parts: str | None, labels: str | None
) -> list[Draft]:
    """Returns a draft for each part of a folder of images, which has these files. Raises
    `SourceError`, and `UnclearError` for what can be read in several ways."""
    listing = list_images(root)
    tables, notes = _tables(root, files)
    if labels is not None and labels not in VALUES:
        file, column = (labels, "") if is_file(labels) else labels.rpartition(":")[::2]
        if not is_file(file):
            values = ", ".join(VALUES)
            raise SourceError(
                f"--labels {labels}: no such file; give a CSV, CSV:COLUMN, or one of {values}"
            )
        table = tables.get(absolute_path(file)) or _read(absolute_path(file), None)
        tables[absolute_path(file)] = table
        labels = table.file + (f":{column}" if column else "")
    tree = Tree(posixpath.basename(root), [image.path for image in listing.images])
    reading = choose(tree._replace(tables=[*tables.values()]), parts, labels)
    drafts = [_draft(root, part, reading, target) for part in reading.parts]
    others = [file for file in files if not file.lower().endswith((*EXTENSIONS, _WRITTEN))]
    notes += [f"{name}: no images in this folder" for name in listing.empty_folders]
    notes += unused([file for file in others if file not in tables])
    if role(tree.name) and reading.classes:
        notes.append(
            f"{tree.name} has the classes; to number all parts alike, give the folder above"
        )
    drafts[0].notes += [*reading.notes, *notes]
    return drafts


def _tables(root: str, files: Sequence[str]) -> tuple[dict[str, Table], list[str]]:
    """Returns the tables in a folder and beside it, by their paths, and why others are not used."""
    found, notes = [*files], []
    with suppress(SourceError):  # there is none
        found += expand_globs([f"{glob.escape(posixpath.dirname(root))}/*.[ctj]s*"])
    tables = {}
    for file in dict.fromkeys(file for file in found if file.lower().endswith(_TABLES)):
        is_inside = file.startswith(f"{root}/")
        folder = posixpath.dirname(file[len(root) + 1 :]) if is_inside else None
        try:
            if not file.endswith(_WRITTEN):
                tables[file] = _read(file, folder)
        except SourceError as error:  # a file of something else
            notes += [f"{posixpath.basename(file)} is not used: {error}"] * is_inside
    return tables, notes


def _read(file: str, folder: str | None) -> Table:
    rows = read_json_lines(file) if file.endswith(".jsonl") else read_csv(file, ",;\t|")
    return Table(relative(file, Path.cwd()), [cells for _, cells in rows], folder)


def _draft(root: str, part: Part, reading: Reading, target: Path) -> Draft:
    labels, images = part.labels, part.images
    folder = posixpath.join(root, part.folder).rstrip("/")
    notes = []
    inner = common_folder([*labels]) if labels else ""
    if inner and len(labels) < len(images):
        # Images of another folder have no label: others would take their places.
        images = [image for image in images if image.startswith(f"{inner}/")]
        notes.append(f"left out: {len(part.images) - len(images)} images outside of {inner}")
        images = [image.removeprefix(f"{inner}/") for image in images]
        labels = {image.removeprefix(f"{inner}/"): label for image, label in labels.items()}
        folder = f"{folder}/{inner}"
    name = pipeline_name(f"{posixpath.basename(root)}-{part.folder}")
    draft = Draft(name, {"images": relative(folder, target)}, len(images), notes=notes)
    chosen = [f"{folder}/{images[number]}" for number in spread(len(images))]
    look = ImageLook.at(chosen)
    if look is None:
        first = f"none of {len(chosen)} images can be opened, such as {chosen[0]}"
        raise SourceError(f"{folder!r}: {first}", file=chosen[0])
    draft.fields["image"] = str(look)
    if damaged := len(chosen) - len(look.sizes):
        draft.notes.append(f"{damaged} of {len(chosen)} images looked at cannot be opened")
    draft.add_image("image", look, ())
    draft.label = "none"
    if labels:
        _add_labels(draft, labels, reading, target)
    return draft


def _add_labels(draft: Draft, labels: Mapping[str, str], reading: Reading, target: Path) -> None:
    classes, column = reading.classes, reading.column
    numbers = {name: str(number) for number, name in enumerate(classes)}
    texts = {image: numbers.get(text, text) for image, text in labels.items()}
    draft.classes = classes
    draft.label = reading.label
    draft.label += "" if classes else f": {len({*labels.values()})} different values"
    some = [[*labels][number] for number in spread(len(labels), _EXAMPLES)]
    draft.examples = [f"{image}: {texts[image][:40]}" for image in some]
    is_folder = all(image.partition("/")[0] == text for image, text in labels.items())
    is_same = all(sorted(part.names) == classes for part in reading.parts if part.labels)
    # A list in YAML has no names that are not UTF-8.
    is_written = is_same or "".join(classes).isprintable()
    if column is None and is_folder and is_written and len(labels) == draft.samples:
        draft.source["labels"] = FOLDERS if is_same else {FOLDERS: [*classes]}
    elif column and not classes and sorted(column.paths) == sorted(labels):
        draft.source["labels"] = relative(absolute_path(column.files[0]), target)
    else:
        values = texts.values()
        if any(map(is_fraction, values)) and all(map(is_number_text, values)):
            draft.transforms.append({"string_to_number": {"field": "label"}})
        file, out = f"{draft.name}{_WRITTEN}", io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([("file", "label"), *sorted(texts.items())])
        draft.files[file] = out.getvalue()
        draft.source["labels"] = file
    if missing := draft.samples - len(labels):
        draft.bad = f"{missing} without a label; others take their places"
