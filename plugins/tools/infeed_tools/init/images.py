"""The starter for a folder of images, from its only reading or the one that the user chose."""

from __future__ import annotations

import csv
import glob
import io
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.config.model import did_you_mean
from infeed_server.sources.images.listing import EXTENSIONS, list_images
from infeed_server.sources.images.table import read_csv, read_json_lines, read_rows
from infeed_server.storage.files import absolute_path, expand_globs, is_file
from infeed_tools.init.annotated_drafts import draft_annotated
from infeed_tools.init.annotations import ANNOTATED, choose_annotated, find_annotations
from infeed_tools.init.draft import REMOVED, Draft, Starter
from infeed_tools.init.listing import (
    common_folder,
    pipeline_name,
    relative,
    role,
    spread,
    unused,
)
from infeed_tools.init.looks import ImageLook, is_number, is_whole, may_have_places
from infeed_tools.init.parts import Part
from infeed_tools.init.readings import (
    FOLDERS,
    VALUES,
    Reading,
    Tree,
    choose,
)
from infeed_tools.init.tables import Table, find_columns

_EXAMPLES = 5
_TABLES = (".csv", ".tsv", ".jsonl")
_LABELS = "-labels.infeed.csv"
_WRITTEN = (_LABELS, REMOVED)
"""Endings of the files that `init` writes, which tell them from the user's files."""


def image_starter(
    root: str, files: Sequence[str], target: Path, parts: str | None, labels: str | None
) -> Starter:
    """Returns a draft for each part of a folder of images with these files. Raises `SourceError`,
    and `UnclearError` if it can be read in several ways."""
    listing = list_images(root)
    tables, about = _tables(root, files)
    images = [image.path for image in listing.images]
    tree = Tree(posixpath.basename(root), images, [*tables.values()])
    found = [] if parts or labels in VALUES else find_annotations(root, files, images)
    annotated = choose_annotated(tree.name, found, labels, lambda: choose(tree))
    if annotated is not None:
        return Starter.of(draft_annotated(root, annotated, target), about)
    if labels in ANNOTATED:
        raise SourceError(f"--labels {labels}: no folder of {root!r} has {ANNOTATED[labels]}")
    if labels is not None and labels not in VALUES:
        chosen, columns = _named(labels)
        for path in map(absolute_path, chosen):
            tables.setdefault(path, _read(path, _folder(path, root)))
        labels = ",".join(tables[absolute_path(file)].file for file in chosen) + columns
        tree = tree._replace(tables=[*tables.values()])
    reading = choose(tree, parts, labels)
    drafts = [_draft(root, part, reading, target) for part in reading.parts]
    if lacking := len(images) - sum(len(part.images) for part in reading.parts):
        about.append(f"left out: {lacking} images that are in no part")
    about += [f"{name}: no images in this folder" for name in listing.empty_folders]
    left = [file for file in files if not file.lower().endswith((*EXTENSIONS, *_WRITTEN))]
    left = [file for file in left if file not in tables]
    stems = {posixpath.splitext(image)[0] for image in map(posixpath.basename, images)}
    others = {*map(posixpath.basename, left)}
    if any(name.endswith(".json") or posixpath.splitext(name)[0] in stems for name in others):
        about.insert(0, "for boxes and other labels, use a source python: docs/python-sources.md")
    bare = [part for part in reading.parts if not part.labels]
    unlabelled = [
        posixpath.join(root, part.folder, image) for part in bare for image in part.images
    ]
    above = root if any(part.has_folders for part in reading.parts if part.labels) else ""
    about += [*unused(left, root), *_hints(left, unlabelled, above)]
    if role(tree.name) and reading.classes:
        about.append(
            f"the classes are those of {tree.name}; give the folder above to number all parts alike"
        )
    return Starter.of(drafts, [*reading.notes, *about])


def _named(labels: str) -> tuple[list[str], str]:
    """Returns the files in a value of --labels, and its rest, which names columns. Raises
    `SourceError`."""
    for columns in range(3):
        given = labels.rsplit(":", columns)[0]
        for files in ([given], given.split(",")):
            if all(map(is_file, files)):
                return files, labels.removeprefix(given)
    path = Path(labels)
    hint = did_you_mean(path.name, [file.name for file in path.parent.glob("*")])
    values = ", ".join((*VALUES, *ANNOTATED))
    raise SourceError(
        f"--labels {labels}: no such file{hint}; give a CSV, CSV:COLUMN, CSV:NAMES:COLUMN, a COCO "
        f"JSON, or one of {values}"
    )


def names_images(file: str, images: Sequence[str]) -> bool:
    """Returns whether a CSV labels images. Raises `SourceError`."""
    root = common_folder(images)
    paths = [image.removeprefix(f"{root}/") for image in images]
    return bool(find_columns([_read(file, None)], paths, chosen=file)[0])


def _hints(left: Iterable[str], images: Iterable[str], above: str) -> Iterator[str]:
    """Yields a command for each text file that names the images around it: for the folder `above`,
    if given, because class folders of other parts number the classes."""
    for file in (file for file in left if file.endswith(".txt")):
        folder = posixpath.dirname(file)
        around = [image for image in images if image.startswith(f"{folder}/")]
        with suppress(SourceError):
            if around and names_images(file, around):
                shown, table = relative(above or folder, Path.cwd()), relative(file, Path.cwd())
                command = shlex.join(["infeed", "init", shown, "--labels", table])
                yield f"{table} names images; for its labels: {command}"


def _tables(root: str, files: Iterable[str]) -> tuple[dict[str, Table], list[str]]:
    """Returns the tables in a folder and beside it, by path, and why others are not used."""
    found, notes = [*files], []
    with suppress(SourceError):  # there is none
        found += expand_globs([f"{glob.escape(posixpath.dirname(root))}/*.[ctj]s*"])
    tables = {}
    for file in dict.fromkeys(file for file in found if file.lower().endswith(_TABLES)):
        try:
            if not file.endswith(_WRITTEN):
                tables[file] = _read(file, _folder(file, root))
        except SourceError as error:  # a file for something else
            notes.append(f"{posixpath.basename(file)} is not used: {error}")
    return tables, notes


def _folder(file: str, root: str) -> str | None:
    is_inside = file.startswith(f"{root}/")
    return posixpath.dirname(file[len(root) + 1 :]) if is_inside else None


def _read(file: str, folder: str | None) -> Table:
    if file.lower().endswith(".json"):
        remedy = "write its labels as CSV or JSON lines, or see docs/python-sources.md"
        raise SourceError(f"{file} is JSON, not a table; {remedy}", file=file)
    rows = read_json_lines(file) if file.endswith(".jsonl") else read_csv(file, ",;\t|")
    return Table(relative(file, Path.cwd()), [cells for _, cells in rows], folder)


def _draft(root: str, part: Part, reading: Reading, target: Path) -> Draft:
    labels, images = part.labels, part.images
    folder = posixpath.join(root, part.folder).rstrip("/")
    notes = []
    inner = common_folder([*labels]) if labels else ""
    if inner and len(labels) < len(images):
        # Images outside this folder have no label: substitutes would replace them.
        images = [image for image in images if image.startswith(f"{inner}/")]
        notes.append(f"left out: {len(part.images) - len(images)} images outside {inner}")
        images = [image.removeprefix(f"{inner}/") for image in images]
        labels = {image.removeprefix(f"{inner}/"): label for image, label in labels.items()}
        folder = f"{folder}/{inner}"
    name = pipeline_name(f"{posixpath.basename(root)}-{part.folder}")
    if reading.column and len(reading.column.files) == 1 and not role(name):
        of_table = role(posixpath.basename(reading.column.files[0]))
        name += f"-{of_table}" * bool(of_table)
    served = sorted(labels) or images
    draft = Draft(name, {"images": relative(folder, target)}, len(served), notes=notes)
    chosen = [served[number] for number in spread(len(served))]
    look = ImageLook.at([f"{folder}/{image}" for image in chosen])
    if not look.sizes:
        first = f"{folder}/{chosen[0]}"
        problem = f"none of the {len(chosen)} images read can be opened, such as {first}"
        raise SourceError(f"{folder!r}: {problem}", file=first)
    texts = [labels[image].encode(errors="surrogateescape") for image in chosen if labels]
    column = reading.column if texts else None
    is_place = column and may_have_places(column.name, "bytes", texts)
    draft.add_image("image", "", look, ["label"] * bool(is_place))
    if damaged := len(chosen) - len(look.sizes):
        draft.notes.append(f"{damaged} of the {len(chosen)} images read cannot be opened")
    draft.label = "none"
    if labels:
        opened = [image for image, is_open in zip(chosen, look.opened, strict=True) if is_open]
        _add_labels(draft, labels, images, opened, part, reading, target)
    if without := [image for image in images if image not in labels] if labels else []:
        names = [f"{posixpath.basename(folder)}/{image}" for image in without]
        draft.leave_out_samples(names, "without a label")
    return draft


def _add_labels(
    draft: Draft,
    labels: Mapping[str, str],
    images: Sequence[str],
    opened: Sequence[str],
    part: Part,
    reading: Reading,
    target: Path,
) -> None:
    """Adds the label, from the folders, the user's table, or a table to write."""
    classes, column = reading.classes, None if part.has_folders else reading.column
    draft.label, draft.classes = "class folder" if part.has_folders else reading.label, classes
    numbers = {name: str(number) for number, name in enumerate(classes)}
    shown = [(opened[n], labels[opened[n]]) for n in spread(len(opened), _EXAMPLES)]
    draft.examples = [f"{image}: {numbers.get(text, text)}" for image, text in shown]
    named = sorted(labels.items())
    parts = [
        {name.partition("/")[0] for name in part.labels}
        for part in reading.parts
        if part.has_folders
    ]
    is_folder = part.has_folders and len(labels) == len(images)
    if is_folder and all(sorted(names) == classes for names in parts if names):
        draft.source["labels"] = FOLDERS
        return
    names = classes if is_folder else [*classes, *images]
    if wrong := re.search(r"[^/]*[\ud800-\udfff][^/]*", "/".join(names)):
        raise SourceError(f"{wrong[0]!r} is a name that is not UTF-8; rename it")
    if is_folder:
        draft.source["labels"] = {FOLDERS: [*classes]}
        return
    files = column.files if column else ()
    table = next((relative(file, target) for file in files if _is_read(file, named)), "")
    if not table:
        table, out = f"{draft.name}{_LABELS}", io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([("file", "label"), *named])
        draft.files[table] = out.getvalue()
    draft.source["labels"] = {"table": table, "classes": [*classes]} if classes else table
    texts = {*labels.values()}
    if not classes and all(map(is_number, texts)) and not all(map(is_whole, texts)):
        draft.transforms.append({"string_to_number": {"field": "label"}})


def _is_read(file: str, labels: Sequence[tuple[str, str]]) -> bool:
    """Returns whether the source reads exactly these labels from a file."""
    with suppress(SourceError):
        return sorted((posixpath.normpath(name), text) for _, name, text in read_rows(file)) == [
            *labels
        ]
    return False
