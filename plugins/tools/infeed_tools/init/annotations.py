"""Annotations beside images: COCO JSON, YOLO text files and masks, as readings of a folder."""

from __future__ import annotations

import io
import logging
import posixpath
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from PIL import Image

from infeed.shared.errors import SourceError
from infeed_formats.annotations.coco import CocoLabels, read_coco
from infeed_formats.annotations.masks import MaskLabels
from infeed_formats.annotations.yolo import YoloLabels, read_names
from infeed_server.sources.images.fields import LabelsDefinition
from infeed_server.storage.files import abbreviate, expand_globs, is_remote, read_bytes
from infeed_tools.init.listing import UnclearError, relative, role, spread
from infeed_tools.init.readings import Reading

YOLO, MASKS = "yolo", "masks"
log = logging.getLogger(__name__)

ANNOTATED = {
    YOLO: "text files of lines `class x y width height`, named like most images of another",
    MASKS: "8-bit PNGs with few greys or a palette, named like most images of another",
}
"""Values of --labels besides paths of JSONs, with the files that they need."""

_MAX_NAMES = 40
"""Names of folders at one depth; with more, no pairs are sought, which would take long."""
_MAX_CLASSES = 32
"""Values in a grey picture that is taken for a mask; one with more is a photo."""
_LOOKED_AT = 8


@dataclass(frozen=True)
class Annotated:
    """A reading: a value of --labels, and the labels of each folder of images below the root."""

    option: str
    text: str
    parts: Sequence[tuple[str, LabelsDefinition]]


def find_annotations(root: str, files: Sequence[str], images: Sequence[str]) -> list[Annotated]:
    """Returns the readings of a folder with these files; `images` are paths in it."""
    inside = [file.removeprefix(f"{root}/") for file in files]
    texts = [file for file in inside if file.endswith(".txt")]
    pngs = [file for file in images if file.lower().endswith(".png")]
    yolo = [
        (folder, YoloLabels(yolo=f"{root}/{other}", names=_names(root, inside)))
        for folder, other in _pairs(images, texts)
        if _are_boxes([f"{root}/{file}" for file in _beside(images, folder, texts, other)])
    ]
    masks = [
        (folder, MaskLabels(masks=f"{root}/{other}"))
        for folder, other in _pairs(images, pngs)
        if _are_masks([f"{root}/{file}" for file in _beside(images, folder, pngs, other)])
    ]
    found = [*_coco(root, files, images)]
    found += [Annotated(YOLO, "boxes of YOLO text files", yolo)] if yolo else []
    return found + ([Annotated(MASKS, "masks", masks)] if masks else [])


def choose_annotated(
    name: str, found: Sequence[Annotated], labels: str | None, other: Callable[[], Reading]
) -> Annotated | None:
    """Returns the reading named by `labels`, or the only one; None if there is none. Raises
    `UnclearError` for several, including the one that `other` finds in folders and tables."""
    if labels is not None or not found:
        return next((one for one in found if one.option == labels), None)
    choices = [({"labels": one.option}, f"{one.text}: {_places(one)}") for one in found]
    if [one.option for one in found] != [MASKS]:  # whose folders would look like classes
        try:
            reading = other()
            if reading.values:
                choices.append(({"labels": "folders", **reading.options}, reading.describe()))
        except UnclearError as error:
            choices += error.choices
    if len(choices) == 1:
        return found[0]
    raise UnclearError(f"{name} has several kinds of labels; choose one", choices)


def _coco(root: str, files: Sequence[str], images: Sequence[str]) -> Iterator[Annotated]:
    """Yields a reading for each set of JSONs, such as those of `train` and `val`."""
    beside = [f"{posixpath.dirname(root)}/{place}" for place in ("*.json", "annotations/*.json")]
    for pattern in () if is_remote(root) else beside:
        with suppress(SourceError):  # there is none
            files = [*files, *expand_globs([pattern])]
    sets: dict[str, list[tuple[str, str]]] = defaultdict(list)
    known = {*images}
    for file in dict.fromkeys(files):
        if not file.endswith(".json"):
            continue
        with suppress(SourceError):
            items = [item for item in read_coco(file)["images"] if isinstance(item, dict)]
            names = [str(item.get("file_name")) for item in items]
            folders = [
                image.removesuffix(names[0]).rstrip("/")
                for image in images
                if names and f"/{image}".endswith(f"/{names[0]}")
            ]
            whole = [f for f in folders if known.issuperset(posixpath.join(f, n) for n in names)]
            if len(whole) != 1 and file.startswith(f"{root}/") and names:
                log.warning(
                    "%s looks like COCO but is not used: its pictures, named like %r, are not all "
                    "in one folder of %r, where images are named like %r; correct file_name",
                    *(file, names[0], root, images[0]),
                )
            if len(whole) == 1:
                kind = "".join(c for c in posixpath.basename(file) if not c.isdigit())
                for part in ("train", "val", "test", "dev"):
                    kind = kind.replace(part, "")
                sets[kind].append((whole[0], file))
    for group in sets.values():
        shown = ",".join(relative(file, Path.cwd()) for _, file in group)
        yield Annotated(shown, "boxes of COCO", [(f, CocoLabels(coco=file)) for f, file in group])


def _pairs(images: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields folders of images, each with a folder that has another file for most of the images;
    the two paths differ in the name of one folder, such as `images` and `labels`."""
    stems = {posixpath.splitext(file)[0] for file in others}
    depth = max((image.count("/") for image in images), default=0)
    for place in range(depth):
        names = {_at(file, place) for file in (*images, *others)} - {""}
        for one, other in permutations(sorted(names), 2) if len(names) <= _MAX_NAMES else ():
            mine = [image for image in images if _at(image, place) == one]
            swapped = [_swap(posixpath.splitext(image)[0], place, other) for image in mine]
            if sum(stem in stems for stem in swapped) * 2 > len(mine):
                for folder in sorted({_part(image, place) for image in mine}):
                    yield folder, _swap(folder, place, other)


def _beside(images: Sequence[str], folder: str, files: Sequence[str], other: str) -> list[str]:
    """Returns the files in the folder `other` that correspond to an image in `folder`."""
    stems = {posixpath.splitext(image)[0].removeprefix(folder) for image in images}
    inside = [file for file in files if file.startswith(f"{other}/")]
    return [file for file in inside if posixpath.splitext(file)[0].removeprefix(other) in stems]


def _at(path: str, place: int) -> str:
    parts = path.split("/")
    return parts[place] if len(parts) > place + 1 else ""


def _swap(path: str, place: int, name: str) -> str:
    parts = path.split("/")
    return "/".join([*parts[:place], name, *parts[place + 1 :]])


def _part(image: str, place: int) -> str:
    """Returns the folder of an image's part, such as `images/train`."""
    parts = image.split("/")[:-1]
    has_role = len(parts) > place + 1 and role(parts[place + 1])
    return "/".join(parts[: place + 1 + bool(has_role)])


def _are_boxes(texts: Sequence[str]) -> bool:
    """Returns whether text files hold lines of five numbers, the last four of them shares."""
    rows = []
    for number in spread(len(texts), _LOOKED_AT):
        rows += [line.split() for line in read_bytes(texts[number]).splitlines() if line.strip()]
    try:
        return bool(rows) and all(
            len(row) == 5 and all(0 <= float(value) <= 1 for value in row[1:]) for row in rows
        )
    except ValueError:
        return False


def _are_masks(pngs: Collection[str]) -> bool:
    """Returns whether pictures have a palette or few greys."""
    files = [*pngs]
    for number in spread(len(files), _LOOKED_AT):
        with Image.open(io.BytesIO(read_bytes(files[number]))) as image:
            is_grey = image.mode == "L" and len(np.unique(np.asarray(image))) <= _MAX_CLASSES
            if not (is_grey or image.mode in ("P", "1")):
                return False
    return bool(files)


def _names(root: str, inside: Sequence[str]) -> str | tuple[str, ...] | None:
    """Returns the path of a YAML below a folder that names classes, or the lines of a
    `classes.txt`; None without either."""
    for file in inside:
        if file.count("/") < 2 and file.endswith((".yaml", ".yml")):
            with suppress(SourceError):
                read_names(f"{root}/{file}")
                return f"{root}/{file}"
    listed = [file for file in inside if posixpath.basename(file) == "classes.txt"]
    text = read_bytes(f"{root}/{listed[0]}").decode(errors="replace") if listed else ""
    return tuple(text.split("\n")) if (text := text.strip()) else None


def _places(reading: Annotated) -> str:
    return abbreviate([folder or "." for folder, _ in reading.parts])
