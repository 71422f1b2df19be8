"""A look at some encoded images: their sizes and channels, and the transforms for them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

from PIL import ExifTags, Image

from infeed_server.starter.draft import Draft, comment, step
from infeed_server.starter.paths import READ_THREADS, read_head

MAX_LOOKED_AT = 64
"""Images that are opened, evenly spread: enough for sizes, few enough for a slow file system."""

FLIP = "not for text, digits or other images with a left and a right"
NORMALIZE = "to 0 to 1, in the trainer: images travel as uint8"

_CROPS = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Heights and widths that are suggested; models are built for them."""

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")

_GEOMETRY_WORDS = {
    *("box", "boxes", "bbox", "bboxes", "xmin", "xmax", "ymin", "ymax", "polygon", "polygons"),
    *("keypoint", "keypoints", "landmark", "landmarks", "point", "points", "pose"),
    *("mask", "masks", "segmentation", "depth"),
}
"""Words in the name of a field that has places in the image."""

_MAX_HEAD = 16 << 20

_Header = tuple[str, tuple[int, int], bool, bool]
"""Format, height and width, whether it is grey, and turned or mirrored by EXIF."""

_TURNED = (5, 6, 7, 8)
"""Orientations in EXIF whose height is the width of the file."""

_MAX_KEPT = 128
"""Pixels. Images of one size, and not larger, are small on purpose: they keep their size."""


@dataclass(frozen=True)
class ImageLook:
    """What is known of some images; `sizes` are height and width."""

    formats: frozenset[str]
    sizes: tuple[tuple[int, int], ...]
    grey: int
    turned: int
    """JPEGs that EXIF turns or mirrors."""

    @classmethod
    def at(cls, images: Sequence[Any]) -> ImageLook | None:
        """Reads the headers of images, given as contents or paths; None if none is an image."""
        with ThreadPoolExecutor(READ_THREADS) as pool:
            found = [header for header in pool.map(_header, images) if header]
        formats, sizes, grey, turned = zip(*found, strict=True) if found else [()] * 4
        return cls(frozenset(formats), sizes, sum(grey), sum(turned)) if sizes else None

    @classmethod
    def of_all(cls, values: Sequence[Any]) -> ImageLook | None:
        """Returns a look at the values of a field; None unless all are images."""
        look = cls.at(values) if all(isinstance(value, bytes) for value in values) else None
        return look if look is not None and len(look.sizes) == len(values) else None

    def describe(self) -> str:
        """Returns the formats, sizes and channels in words."""
        sides = []
        for name, values in zip(("height", "width"), zip(*self.sizes, strict=True), strict=True):
            low, high = min(values), max(values)
            span = f"{low}" if low == high else f"{low} to {high} (median {median(values):g})"
            sides.append(f"{name} {span}")
        grey = f", {self.grey} of {len(self.sizes)} grey" if self.grey else ""
        turned = f", {self.turned} of {len(self.sizes)} turned by EXIF" if self.turned else ""
        return f"{'/'.join(sorted(self.formats))}, {', '.join(sides)}{grey}{turned}"

    def suggest(self, draft: Draft, field: str, fields: Iterable[str] = ()) -> None:
        """Adds the transforms of a draft's first field of images: to one size, from 0 to 1. No
        random one moves the image alone, where another of the fields has places in it."""
        if draft.transforms:
            return
        attached = attached_field(other for other in fields if other != field)
        training = draft.is_for_training and not attached
        is_grey = self.grey == len(self.sizes)
        decode: dict[str, Any] = {"field": field, "channels": 1 if is_grey else 3}
        if self.turned:
            decode["exif"] = "apply"
        about = "photos are turned upright" if self.turned else ""
        lines = [step("decode_image", about, **decode)]
        if len(set(self.sizes)) == 1 and max(self.sizes[0]) <= _MAX_KEPT:
            about, size = "the size that they have; a batch needs a fixed one", [*self.sizes[0]]
            lines.append(step("resize", about, field=field, size=size))
        else:
            name = "random_resized_crop" if training else "resize"
            about = "height, width" if training else "height, width; changes the proportions"
            about += f"; pixels in {attached!r} fit no longer" if attached else ""
            short = median(min(size) for size in self.sizes)
            side = next((side for side in _CROPS if side <= short), _CROPS[-1])
            lines.append(step(name, about, field=field, size=[side, side]))
        if training:
            lines.append(step("random_flip_left_right", FLIP, field=field))
        if attached:
            lines.append(comment(f"no crop or flip, which would not move {attached!r}"))
        lines.append(step("normalize", NORMALIZE, field=field, scale=255.0))
        if not is_grey:
            usual = "also usual: mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"
            lines.append(comment(usual))
        draft.transforms = lines


def attached_field(names: Iterable[str]) -> str:
    """Returns the first field with places in an image, by its name; empty if there is none."""
    for name in names:
        words = re.findall(r"[A-Z]?[a-z]+", name)
        if not _GEOMETRY_WORDS.isdisjoint(word.lower() for word in words):
            return name
    return ""


def _header(image: Any, size: int = 64 << 10) -> _Header | None:
    """Returns the header of an image, given as content or path, in its first bytes."""
    try:
        content = image if isinstance(image, bytes) else read_head(image, size)
        with Image.open(io.BytesIO(content)) as opened:
            turn = _orientation(opened)
            shape = opened.size if turn in _TURNED else opened.size[::-1]
            return str(opened.format), shape, opened.mode in _GREY_MODES, turn != 1
    except (OSError, ValueError, Image.DecompressionBombError):
        # A long profile or preview can be in front.
        return None if isinstance(image, bytes) or size >= _MAX_HEAD else _header(image, _MAX_HEAD)


def _orientation(image: Image.Image) -> int:
    if image.format not in ("JPEG", "MPO"):  # of the others, decode_image reads no EXIF
        return 1
    try:
        found = int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001 - invalid EXIF counts as none, whatever Pillow raises for it
        return 1
    return found if found in range(1, 9) else 1


def spread(count: int, most: int = MAX_LOOKED_AT) -> list[int]:
    """Returns at most so many indices, evenly spread from the first to the last."""
    if count <= most:
        return list(range(count))
    return [number * (count - 1) // (most - 1) for number in range(most)]
