"""Drafts for annotated images: the targets, their fields, and the transforms that they allow."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from infeed_formats.annotations.coco import CocoLabels, read_coco
from infeed_formats.annotations.masks import MaskLabels
from infeed_formats.annotations.yolo import YoloLabels
from infeed_server.sources.base import Exif
from infeed_server.sources.images.fields import ImageFields, LabelsDefinition
from infeed_server.sources.images.listing import ImageListing, list_images
from infeed_server.storage.files import abbreviate
from infeed_tools.init.annotations import Annotated
from infeed_tools.init.draft import Draft
from infeed_tools.init.listing import pipeline_name, relative, role, spread
from infeed_tools.init.looks import ImageLook

_MASKS = 40
"""Masks whose values are counted."""
_WORDS = re.compile("([A-Z]?[a-z]+|[A-Z]+(?![a-z]))")
_SIDES = {"left": "right", "right": "left"}
_EXIF_NOTES: dict[Exif, str] = {
    "apply": "exif: apply, since the labels have the sizes of the photos as EXIF turns them",
    "ignore": "exif: ignore, since the labels have the sizes of the photos as they are stored",
    "unclear": "EXIF turns photos, and the labels do not tell whether they fit them as turned or "
    "as stored: exif: apply turns them, as Ultralytics does; if infeed peek --png shows labels "
    "beside their objects, write exif: ignore",
}


def draft_annotated(root: str, reading: Annotated, target: Path) -> list[Draft]:
    """Drafts the pipelines of a reading. Raises `SourceError` if labels cannot be read."""
    drafts = [_draft(root, folder, labels, target) for folder, labels in reading.parts]
    boxes = [draft.targets["boxes"]["boxes"] for draft in drafts if "boxes" in draft.targets]
    for options in boxes:
        options["pad"] = max(other["pad"] for other in boxes)  # one shape in all parts
    return drafts


def _draft(root: str, folder: str, labels: LabelsDefinition, target: Path) -> Draft:
    path = posixpath.join(root, folder).rstrip("/")
    listing = list_images(path)
    read = labels.read(listing)
    samples = len(listing.images) - len(read.missing)
    shown: dict[str, Any] = {
        key: relative(value, target) if key in labels.paths() else [*value]
        for key, value in labels
        if value
    }
    parts = [part for part in folder.split("/") if part not in ("images", "")]
    if isinstance(labels, CocoLabels) and not any(map(role, parts)):
        parts += filter(None, [role(posixpath.basename(labels.coco))])
    name = pipeline_name("-".join([posixpath.basename(root), *parts]))
    draft = Draft(name, {"images": relative(path, target), "labels": shown}, samples)
    chosen = [f"{path}/{listing.images[number].path}" for number in spread(len(listing.images))]
    draft.add_image("image", "", ImageLook.at(chosen, read.exif), ["label"])
    draft.notes = [_EXIF_NOTES[read.exif]] if read.exif else []
    flip = [{"random_flip_left_right": {"field": "image"}}] * draft.is_for_training
    draft.transforms[-1:-1] = flip
    if isinstance(labels, MaskLabels):
        draft.transforms.insert(1, {"decode_image": {"field": "mask", "channels": 1}})
        draft.fields["mask"], draft.label = f"PNG of classes, {_mask_values(read, listing)}", "none"
        draft.targets = {"mask": "mask"}
    else:
        _add_rows(draft, labels, read)
    gone = [listing.images[number].path for number in sorted(read.missing)]
    if gone and isinstance(labels, CocoLabels):
        names = [f"{posixpath.basename(path)}/{image}" for image in gone]
        draft.leave_out_samples(names, f"that {posixpath.basename(labels.coco)} does not name")
    elif gone:
        some = abbreviate(gone)
        draft.bad = f"{len(read.missing)} images have no labels: {some}"
    return draft


def _add_rows(draft: Draft, labels: LabelsDefinition, read: ImageFields) -> None:
    """Adds the boxes, and the fields with a row for each box."""
    fields = [name for name in read.columns if name != "boxes"]
    most = max(1, getattr(read, "most", 1))
    is_yolo = isinstance(labels, YoloLabels)
    options = {"format": "xyxy", **({"normalized": True} if is_yolo else {})}
    draft.targets = {"boxes": {"boxes": {**options, "with": fields, "pad": most}}}
    draft.fields["boxes"] = f"float32 [n, 4], n up to {most}"
    for name in fields:
        rows = read.whole_field(name)
        shape = () if rows is None else rows[0].shape[1:]
        draft.fields[name] = f"[{', '.join(['n', *map(str, shape)])}]"
    draft.label, draft.classes = "label of each box", read.classes.get("label", ())
    if not draft.classes:
        draft.notes.append(
            "the classes are numbers without names, as no data.yaml names them; to name them, add "
            "names: [NAME, NAME] to labels"
        )
    if "keypoints" in fields and isinstance(labels, CocoLabels):
        pairs = _mirrored_pairs(labels)
        draft.targets["keypoints"] = {"keypoints": {"pairs": pairs}} if pairs else "keypoints"
        if not pairs and draft.is_for_training:
            draft.transforms = [s for s in draft.transforms if "random_flip_left_right" not in s]
            draft.notes.append(
                "image gets no random_flip_left_right, because the JSON does not tell left from "
                "right points, which a mirrored picture swaps; to add it, give keypoints the pairs "
                "of such points (docs/targets.md)"
            )


def _mask_values(read: ImageFields, listing: ImageListing) -> str:
    """Returns a text about the values of masks' pixels."""
    numbers = [n for n in range(len(listing.images)) if n not in read.missing]
    chosen = [numbers[place] for place in spread(len(numbers), _MASKS)]
    values: set[int] = set()
    for content in read.read(np.array(chosen))["mask"]:
        with Image.open(io.BytesIO(content)) as image:
            values |= {*np.unique(np.asarray(image)).tolist()}
    return f"values of {len(chosen)} masks: {abbreviate(sorted(values), 20)}"


def _mirrored_pairs(labels: CocoLabels) -> list[list[int]]:
    """Returns the pairs of points that a mirrored picture swaps, by number, found by their names;
    empty if a name has no counterpart or the categories differ."""
    listed = [one.get("keypoints") for one in read_coco(labels.coco)["categories"]]
    found = [_pairs_of(names) for names in listed if isinstance(names, list)]
    return found[0] if found and all(pairs == found[0] for pairs in found) else []


def _pairs_of(names: Sequence[Any]) -> list[list[int]]:
    places = {str(name).lower(): number for number, name in enumerate(names)}
    pairs = []
    for number, name in enumerate(map(str, names)):
        words = [_SIDES.get(word.lower(), word.lower()) for word in _WORDS.split(name)]
        if (mirrored := "".join(words)) == name.lower():
            continue
        if mirrored not in places:
            return []
        pairs.append(sorted((number, places[mirrored])))
    return [[*pair] for pair in dict.fromkeys(map(tuple, pairs))]
