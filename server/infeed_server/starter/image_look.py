"""A look at some encoded images: their sizes and channels, and the transforms for them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from infeed_server.starter.draft import Draft, comment, step

MAX_LOOKED_AT = 64
"""Images that are opened, evenly spread: enough for sizes, few enough for a slow file system."""

FLIP = "not for text, digits or other images with a left and a right"
NORMALIZE = "to 0 to 1, in the trainer: images travel as uint8"

_CROPS = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Heights and widths that are suggested; models are built for them."""

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")

_PLACES = ("box", "polygon", "point", "landmark", "pose", "mask", "segment", "depth", "xmin")
"""Parts of the name of a field that has places in the image."""

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
        formats, sizes, grey, turned = set(), [], 0, 0
        for image in images:
            try:
                with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
                    orientation = _orientation(opened)
                    size = (opened.height, opened.width)
                    formats.add(str(opened.format))
                    sizes.append(size[::-1] if orientation in range(5, 9) else size)
                    grey += opened.mode in _GREY_MODES
                    turned += orientation in range(2, 9)
            except (OSError, ValueError, Image.DecompressionBombError):
                continue
        return cls(frozenset(formats), tuple(sizes), grey, turned) if sizes else None

    @classmethod
    def of_all(cls, values: Sequence[Any]) -> ImageLook | None:
        """Returns a look at the values of a field; None unless all are images."""
        look = cls.at(values) if all(isinstance(value, bytes) for value in values) else None
        return look if look is not None and len(look.sizes) == len(values) else None

    def describe(self) -> str:
        """Returns the formats, sizes and channels in words."""
        words = ["/".join(sorted(self.formats))]
        for name, values in zip(("height", "width"), zip(*self.sizes, strict=True), strict=True):
            low, high = min(values), max(values)
            span = f"{low}" if low == high else f"{low} to {high} (median {median(values):g})"
            words.append(f"{name} {span}")
        for count, what in ((self.grey, "grey"), (self.turned, "turned by EXIF")):
            words += [f"{count} of {len(self.sizes)} {what}"] * bool(count)
        return ", ".join(words)

    def suggest(self, draft: Draft, field: str, fields: Iterable[str] = ()) -> None:
        """Adds the transforms of a draft's first field of images: to one size, from 0 to 1.

        No random one moves the image alone, where another of the fields has places in it.
        """
        if draft.transforms:
            return
        others = [name for name in fields if name != field]
        attached = [name for name in others if any(part in name.lower() for part in _PLACES)]
        moves = draft.is_for_training and not attached
        is_grey = self.grey == len(self.sizes)
        turn = {"exif": "apply"} if self.turned else {}
        lines = [step("decode_image", field=field, channels=1 if is_grey else 3, **turn)]
        if len(set(self.sizes)) == 1 and max(self.sizes[0]) <= _MAX_KEPT:
            about = "the size that they have; a batch needs a fixed one"
            lines.append(step("resize", about, field=field, size=[*self.sizes[0]]))
        else:
            short = median(min(size) for size in self.sizes)
            side = next((side for side in _CROPS if side <= short), _CROPS[-1])
            about = "height, width" + ("" if moves else "; changes the proportions")
            name = "random_resized_crop" if moves else "resize"
            lines.append(step(name, about, field=field, size=[side, side]))
        if moves:
            lines.append(step("random_flip_left_right", FLIP, field=field))
        lines += [comment(f"no crop or flip, which would not move {name!r}") for name in attached]
        draft.transforms = [*lines, step("normalize", NORMALIZE, field=field, scale=255.0)]


def _orientation(image: Image.Image) -> int:
    if image.format not in ("JPEG", "MPO"):  # of the others, decode_image reads no EXIF
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001 - invalid EXIF counts as none, whatever Pillow raises for it
        return 1


def spread(count: int, most: int = MAX_LOOKED_AT) -> list[int]:
    """Returns at most so many indices, evenly spread from the first to the last."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most))})
