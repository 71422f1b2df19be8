"""Starters for images: class folders, one flat folder, or a CSV of labels."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import EXTENSIONS, ImageListing, list_images
from infeed_server.starter.draft import (
    WRITTEN_LABELS,
    Draft,
    comment,
    line,
    pipeline_name,
    relative,
    step,
)
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.labels import (
    FOLDERS,
    NONE,
    Column,
    Part,
    chosen_labels,
    find_labels,
    is_number,
)
from infeed_server.starter.paths import DataPath, data_path, files_below
from infeed_server.storage.files import abbreviate

_PARTS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
"""Names of folders that are parts of a data set, not classes."""
_OTHER_FORMATS = (".avif", ".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp")
"""Endings of images that the source does not list."""


def image_drafts(
    folder: DataPath, files: Sequence[DataPath], target: Path, labels: str | None
) -> list[Draft]:
    """Returns a draft for each part of a folder of images, of which these are the files, with these
    labels if they are given. Raises `SourceError`, and `UnclearError` where the label must be
    chosen."""
    listing = list_images(str(folder))
    names = [name for name in listing.folders if name.lower() in _PARTS]
    if names and all(image.path.partition("/")[0] in names for image in listing.images):
        folders = [folder / name for name in names]
        parts = [Part(listing, list_images(f"{folder}/{name}"), f"{name}/") for name in names]
    else:
        folders, parts = [folder], [Part(listing, listing)]
        if folder.name.lower() in _PARTS:
            folders = [path for path in folder.parent.glob("*") if path.name.lower() in _PARTS]
    classes = _classes_of_parts(folders)
    drafts = []
    for part in parts:
        draft = _draft(f"{folder.name}-{part.prefix}", part.listing, files, target)
        _label(draft, part, target, labels, classes)
        drafts.append(draft)
    return drafts


def csv_drafts(file: DataPath, target: Path, labels: str | None) -> list[Draft]:
    """Returns the drafts for a CSV of labels, whose images are beside it. Raises `SourceError`."""
    files = files_below(file.parent)
    images = [path for path in files if path.suffix.lower() in EXTENSIONS]
    if not images:
        shown = shlex.quote(str(file))
        raise SourceError(
            f"{file}: there are no images beside it; give their folder: infeed init FOLDER "
            f"--labels {shown}; if the CSV is the data, save its columns as arrays, and give their "
            "file: np.savez('data.npz', **{name: df[name].to_numpy() for name in df}) with "
            "df = pandas.read_csv(...)",
            file=file,
        )
    return image_drafts(common_folder(images), files, target, labels or str(file))


def common_folder(files: Sequence[DataPath]) -> DataPath:
    """Returns the deepest folder that has all files below it."""
    return type(files[0])(os.path.commonpath([file.parent for file in files]))


def _draft(name: str, listing: ImageListing, files: Sequence[DataPath], target: Path) -> Draft:
    paths = [data_path(f"{listing.root}/{image.path}") for image in listing.images]
    chosen = [paths[index] for index in spread(len(paths))]
    look = ImageLook.at(chosen)
    if look is None:
        raise SourceError(
            f"{listing.root!r}: none of {len(chosen)} images can be opened, such as {chosen[0]}",
            file=listing.root,
        )
    about = [f"{len(paths)} images; of {len(chosen)} looked at: {look.describe()}"]
    if damaged := len(chosen) - len(look.sizes):
        about.append(f"of these, {damaged} cannot be opened: infeed check --scan names all")
    others = Counter(path.suffix.lower() for path in files if path.is_relative_to(listing.root))
    if left := [f"{others[ending]} {ending}" for ending in _OTHER_FORMATS if others[ending]]:
        about.append(f"left out: {', '.join(left)}; convert them to JPEG or PNG")
    source = [line("images", relative(listing.root, target))]
    draft = Draft(pipeline_name(name), about, source, len(paths))
    look.suggest(draft, "image")
    return draft


def _classes_of_parts(folders: Sequence[DataPath]) -> Sequence[str]:
    """Returns the class folders of all parts together, if one part lacks some; otherwise none. A
    part without folders has no labels, and does not count."""
    names = []
    for folder in folders:
        with suppress(SourceError):  # no image in it
            names.append(list_images(str(folder)).folders)
    union = sorted({name for part in names for name in part})
    return union if any(part and list(part) != union for part in names) else []


def _label(
    draft: Draft, part: Part, target: Path, labels: str | None, classes: Sequence[str]
) -> None:
    """Adds the labels of a part's images; `classes` are numbered instead of its own folders."""
    stray = [image.path for image in part.listing.images if "/" not in image.path]
    names = classes or part.listing.folders
    if labels == FOLDERS and (stray or not names):
        raise SourceError(
            f"--labels {FOLDERS}: {len(stray)} images below {part.listing.root!r} are in no class "
            f"folder, such as {stray[0]}; move them",
            file=part.listing.root,
        )
    if labels == FOLDERS or (labels is None and not stray and len(names) > 1):
        _add_folders(draft, part, names)
        return
    found = None
    if labels is None:
        found = find_labels(part, draft.about)
    elif labels != NONE:
        found = chosen_labels(part, labels)
    if found is not None:
        _add_column(draft, part, found, target)
        return
    draft.label = "no label" if labels else f"no label was found{_reason(part, stray)}"
    draft.source.append(comment("labels: labels.csv, with the columns file,label"))


def _reason(part: Part, stray: Sequence[str]) -> str:
    """Returns why folders give no label, where there are some, and what to do."""
    if part.listing.folders and stray:
        count = f"{len(stray)} images are in no class folder, such as {stray[0]}"
        return f": {count}; move them, and write labels: folders"
    parents = {image.path.rpartition("/")[0] for image in part.listing.images}
    if len(parents) > 1 and not stray:
        common = os.path.commonpath(parents)
        return f"; if the folders of {common} are classes, give {part.listing.root}/{common}"
    return ""


def _add_folders(draft: Draft, part: Part, classes: Sequence[str]) -> None:
    folders = {image.path: image.path.partition("/")[0] for image in part.listing.images}
    if list(classes) != list(part.listing.folders):
        numbers = {image: classes.index(folder) for image, folder in folders.items()}
        path = _write_labels(draft, numbers)
        draft.about.append(f"another part has more class folders; {path} has the same numbers")
    else:
        draft.source.append(line("labels", FOLDERS, "label: the number of the folder, sorted"))
    sizes = Counter(folders.values()).values()
    of = f"{min(sizes)} to {max(sizes)}" if len(set(sizes)) > 1 else f"{min(sizes)}"
    first, folder = next(iter(folders.items()))
    draft.label = (
        f"label is the class folder: {len(classes)} classes, in each folder {of} images: "
        f"{abbreviate(_numbered(classes))}; {first} has {classes.index(folder)}"
    )
    draft.about += [
        f"{file.name} is not used; for its labels: --labels {relative(file, Path.cwd())}"
        for file in part.csv_files()
        if file.is_relative_to(part.whole.root)
    ]


def _add_column(draft: Draft, part: Part, column: Column, target: Path) -> None:
    name, classes = column.file.name, column.classes()
    labels: Mapping[str, str | int] = column.labels
    values = sorted(set(column.labels.values()), key=lambda text: (len(text), text))
    draft.about += [
        f"left out: {count} row{'s' * (count > 1)} of {name} without {lack}"
        for lack, count in column.left_out.items()
        if count
    ]
    if classes and part.prefix:  # each part would number the classes that it has
        draft.about.append("the labels are text: number the classes alike in all parts")
    elif classes:
        values = _numbered(classes)
        labels = {image: classes.index(text) for image, text in column.labels.items()}
    if labels is column.labels and column.is_plain:
        draft.source.append(line("labels", relative(column.file, target), "columns file,label"))
    else:
        path = _write_labels(draft, labels)
        draft.about.append(f"{path} was made from {name}, with the columns file,label")
    first, label = next(iter(labels.items()))
    draft.label = (
        f"label is the column {column.name} of {name}: {len(values)} different values: "
        f"{abbreviate([value[:40] for value in values])}; {first} has {str(label)[:40]}"
    )
    texts = [text for text in column.labels.values() if not text.lstrip("+-").isdecimal()]
    if texts and all(map(is_number, column.labels.values())):
        draft.transforms.append(step("string_to_number", "the CSV has text", field="label"))
    if missing := draft.samples - len(labels):
        draft.on_error = f"{missing} without a label; others take their places"


def _write_labels(draft: Draft, labels: Mapping[str, str | int]) -> str:
    """Adds a CSV of labels beside the pipelines, and returns its name."""
    path, out = f"{draft.name}{WRITTEN_LABELS}", io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("file", "label"), *sorted(labels.items())])
    draft.files[path] = out.getvalue()
    draft.source.append(line("labels", path, "columns file,label"))
    return path


def _numbered(classes: Sequence[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(classes)]
