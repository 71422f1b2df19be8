"""A look at some encoded images: their sizes and channels, and the transforms for them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from PIL import Image, UnidentifiedImageError

from infeed_server.starter.draft import Line, step

MAX_LOOKED_AT = 64
"""Images that are opened, evenly spread: enough for sizes, few enough for a slow file system."""

_CROPS = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Heights and widths that are suggested; models are built for them."""

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")

_MAX_KEPT = 128
"""Pixels. Images of one size, and not larger, are small on purpose: they keep their size."""


@dataclass(frozen=True)
class ImageLook:
    """What is known of some images; `sizes` are height and width."""

    formats: frozenset[str]
    sizes: tuple[tuple[int, int], ...]
    grey: int

    @classmethod
    def at(cls, images: Iterable[bytes | str]) -> ImageLook | None:
        """Reads the headers of images, given as contents or paths; None if none is an image."""
        formats, sizes, grey = set(), [], 0
        for image in images:
            try:
                with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
                    formats.add(str(opened.format))
                    sizes.append((opened.height, opened.width))
                    grey += opened.mode in _GREY_MODES
            except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
                continue
        return cls(frozenset(formats), tuple(sizes), grey) if sizes else None

    def describe(self) -> str:
        """Returns the formats, sizes and channels in words."""
        sides = []
        for name, values in zip(("height", "width"), zip(*self.sizes, strict=True), strict=True):
            low, high = min(values), max(values)
            span = f"{low}" if low == high else f"{low} to {high} (median {median(values):g})"
            sides.append(f"{name} {span}")
        grey = f", {self.grey} of {len(self.sizes)} grey" if self.grey else ""
        return f"{'/'.join(sorted(self.formats))}, {', '.join(sides)}{grey}"

    def transforms(self, field: str, *, training: bool) -> list[Line]:
        """Returns the suggested transforms: to images of one size, from 0 to 1."""
        is_grey = self.grey == len(self.sizes)
        channels = 1 if is_grey else 3
        lines = [step("decode_image", field=field, channels=channels)]
        height, width = self.sizes[0]
        if set(self.sizes) == {(height, width)} and max(height, width) <= _MAX_KEPT:
            comment = "the size that they have; a batch needs a fixed one"
            lines.append(step("resize", comment, field=field, size=[height, width]))
        else:
            side = self._crop()
            name = "random_resized_crop" if training else "resize"
            comment = "height, width" if training else "height, width; changes the proportions"
            lines.append(step(name, comment, field=field, size=[side, side]))
        if training:
            comment = "not for text, digits or other images with a left and a right"
            lines.append(step("random_flip_left_right", comment, field=field))
        comment = "to 0 to 1, in the trainer: images travel as uint8"
        lines.append(step("normalize", comment, field=field, scale=255.0))
        if not is_grey:
            usual = "also usual: mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"
            lines.append(Line("", usual))
        return lines

    def _crop(self) -> int:
        """Returns the largest usual size that half of the images have."""
        short = median(min(size) for size in self.sizes)
        return next((side for side in _CROPS if side <= short), _CROPS[-1])


def spread(count: int, most: int = MAX_LOOKED_AT) -> list[int]:
    """Returns at most so many indices, evenly spread from the first to the last."""
    if count <= most:
        return list(range(count))
    return [number * (count - 1) // (most - 1) for number in range(most)]
