"""Annotations beside images: COCO JSON, YOLO text files and masks, as readings of a folder."""

from __future__ import annotations

import io
import logging
import posixpath
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, permutations
from pathlib import Path

import numpy as np
from PIL import Image

from infeed.shared.errors import SourceError
from infeed_formats.annotations.coco import CocoLabels, read_coco
from infeed_formats.annotations.masks import MaskLabels
from infeed_formats.annotations.yolo import YoloLabels, read_names
from infeed_server.sources.images.fields import LabelsDefinition
from infeed_server.storage.files import abbreviate, expand_globs, is_remote, read_bytes
from infeed_tools.init.listing import UnclearError, common_folder, relative, role, spread
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
_MAX_TEXTS = 1000
"""Text files among which those are looked for that have a box."""


@dataclass(frozen=True)
class Annotated:
    """A reading: a value of --labels, and the labels of each folder of images below the root."""

    option: str
    text: str
    parts: Sequence[tuple[str, LabelsDefinition]] = ()
    doubt: str = ""
    """Why it is not taken by itself; without parts, it cannot be."""


def find_annotations(root: str, files: Sequence[str], images: Sequence[str]) -> list[Annotated]:
    """Returns the readings of a folder with these files; `images` are paths in it."""
    inside = [file.removeprefix(f"{root}/") for file in files]
    texts = [file for file in inside if file.endswith(".txt")]
    pngs = [file for file in images if file.lower().endswith(".png")]
    yolo: dict[bool | None, list[tuple[str, LabelsDefinition]]] = defaultdict(list)
    for folder, other in _pairs(images, texts):
        has_boxes = _has_boxes([f"{root}/{file}" for file in _beside(images, folder, texts, other)])
        labels = YoloLabels(yolo=f"{root}/{other}", names=_names(root, inside))
        yolo[has_boxes].append((folder, labels))
    masks = [
        (folder, MaskLabels(masks=f"{root}/{other}"))
        for folder, other in _pairs(images, pngs)
        if _are_masks([f"{root}/{file}" for file in _beside(images, folder, pngs, other)])
    ]
    found = [*_coco(root, files, images)]
    if yolo[True]:
        found.append(Annotated(YOLO, "boxes of YOLO text files", yolo[True]))
    elif yolo[None]:
        doubt = "the text files that are named as images are empty, as YOLO's are without boxes"
        found.append(Annotated(YOLO, "no boxes, of YOLO text files", yolo[None], doubt))
    return found + ([Annotated(MASKS, "masks", masks)] if masks else [])


def choose_annotated(
    name: str, found: Sequence[Annotated], labels: str | None, other: Callable[[], Reading]
) -> Annotated | None:
    """Returns the reading named by `labels`, or the only one; None if there is none. Raises
    `UnclearError` for several, including the one that `other` finds in folders and tables."""
    if labels is not None or not found:
        chosen = next((one for one in found if one.option == labels), None)
        if chosen and not chosen.parts:
            raise SourceError(chosen.doubt)
        return chosen
    certain = [one for one in found if not one.doubt]
    doubts = [one.doubt for one in found if one.doubt]
    usable = certain or [one for one in found if one.parts]
    choices = [({"labels": one.option}, f"{one.text}: {_places(one)}") for one in usable]
    is_labelled = bool(certain)
    if [one.option for one in certain] != [MASKS]:  # whose folders would look like classes
        try:
            reading = other()
            is_labelled |= bool(reading.values)
            if reading.values or not certain:
                choices.append(({"labels": "folders", **reading.options}, reading.describe()))
        except UnclearError as error:
            choices += error.choices
    if len(choices) > 1 or not is_labelled:
        problem = " has several kinds of labels" if certain else f": {'; '.join(doubts)}"
        raise UnclearError(f"{name}{problem}; choose one", choices)
    for doubt in doubts:
        log.warning("%s; it is not used", doubt)
    return certain[0] if certain else None


def _coco(root: str, files: Sequence[str], images: Sequence[str]) -> Iterator[Annotated]:
    """Yields a reading for each set of JSONs, such as those of `train` and `val`."""
    beside = [f"{posixpath.dirname(root)}/{place}" for place in ("*.json", "annotations/*.json")]
    for pattern in () if is_remote(root) else beside:
        with suppress(SourceError):  # there is none
            files = [*files, *expand_globs([pattern])]
    sets: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file in dict.fromkeys(files):
        if not file.endswith(".json"):
            continue
        with suppress(SourceError):
            items = [item for item in read_coco(file)["images"] if isinstance(item, dict)]
            names = [str(item.get("file_name")) for item in items]
            whole = _folders_of(names, root, images)
            if len(whole) != 1 and file.startswith(f"{root}/") and names:
                doubt = (
                    f"{file} looks like COCO, but its pictures, named like {names[0]!r}, are not "
                    f"all in one folder of {root!r}, where images are named like {images[0]!r}; "
                    "correct file_name"
                )
                yield Annotated(relative(file, Path.cwd()), "boxes of COCO", doubt=doubt)
            if len(whole) == 1:
                kind = "".join(c for c in posixpath.basename(file) if not c.isdigit())
                for part in ("train", "val", "test", "dev"):
                    kind = kind.replace(part, "")
                sets[kind].append((whole[0], file))
    for group in sets.values():
        shown = ",".join(relative(file, Path.cwd()) for _, file in group)
        yield Annotated(shown, "boxes of COCO", [(f, CocoLabels(coco=file)) for f, file in group])


def _folders_of(names: Sequence[str], root: str, images: Sequence[str]) -> list[str]:
    """Returns the folders that have a picture of each name, which may be a whole path."""
    known = {*images}
    inside = [name.removeprefix(f"{root}/") for name in names]
    if inside != names:
        return [common_folder(inside)] if known.issuperset(inside) else []
    folders = [
        image.removesuffix(names[0]).rstrip("/")
        for image in images
        if names and f"/{image}".endswith(f"/{names[0]}")
    ]
    return [f for f in folders if known.issuperset(posixpath.join(f, name) for name in names)]


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


def _has_boxes(texts: Sequence[str]) -> bool | None:
    """Returns whether text files hold lines of five numbers, the last four of them shares; None if
    the files looked at are empty."""
    contents = (read_bytes(texts[n]).strip() for n in spread(len(texts), _MAX_TEXTS))
    filled = islice(filter(None, contents), _LOOKED_AT)
    rows = [line.split() for content in filled for line in content.splitlines() if line.strip()]
    if texts and not rows:
        return None
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
