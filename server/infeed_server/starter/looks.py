"""Look at encoded images: their formats, sizes and channels, and the transforms that fit them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

from PIL import ExifTags, Image

from infeed_server.starter.listing import READ_THREADS, read_head, words

_DECODED = {"JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP"}
_SIDES = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Heights and widths that are suggested; models are built for them."""
_MAX_KEPT = 128
"""Pixels. Images of one size, and not larger, are small on purpose: they keep their size."""
_PLACES = re.compile(
    r"b?box(es)?|[xy](min|max)|(polygon|keypoint|landmark|point|mask)s?|pose|segmentation|depth"
)
"""Words in the name of a field that has places in an image."""
_MAX_HEAD = 16 << 20

_Header = tuple[str, tuple[int, int], bool, bool]
"""Format, height and width, whether it is grey, and turned or mirrored by EXIF."""


@dataclass(frozen=True)
class ImageLook:
    """What is known of some images; `sizes` are height and width."""

    formats: frozenset[str]
    sizes: Sequence[tuple[int, int]]
    grey: int
    turned: int

    @classmethod
    def at(cls, images: Sequence[str | bytes]) -> ImageLook | None:
        """Reads the headers of images, given as contents or paths; None if none is an image."""
        with ThreadPoolExecutor(READ_THREADS) as pool:
            found = [header for header in pool.map(_header, images) if header]
        formats, sizes, grey, turned = zip(*found, strict=True) if found else [()] * 4
        return cls(frozenset(formats), sizes, sum(grey), sum(turned)) if sizes else None

    def __str__(self) -> str:
        sides = []
        for name, values in zip(("height", "width"), zip(*self.sizes, strict=True), strict=True):
            low, high = min(values), max(values)
            sides.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
        counts = [(self.grey, "grey"), (self.turned, "turned by EXIF")]
        found = [f"{count} of {len(self.sizes)} {what}" for count, what in counts if count]
        return ", ".join(["/".join(sorted(self.formats)), *sides, *found])

    @property
    def undecoded(self) -> str:
        """The formats that `decode_image` does not read."""
        return "/".join(sorted(self.formats - _DECODED))

    def steps(
        self, field: str, others: Sequence[str], *, is_for_training: bool
    ) -> list[dict[str, Any]]:
        """Returns transforms to one size and values from 0 to 1. No random one moves the image
        alone, if another field has places in it."""
        decode: dict[str, Any] = {"channels": 1 if self.grey == len(self.sizes) else 3}
        decode |= {"exif": "apply"} if self.turned else {}
        short = median(min(size) for size in self.sizes)
        side = next((side for side in _SIDES if side <= short), _SIDES[-1])
        is_kept = len({*self.sizes}) == 1 and max(self.sizes[0]) <= _MAX_KEPT
        size = [*self.sizes[0]] if is_kept else [side, side]
        moves: dict[str, dict[str, Any]] = {"resize": {"size": size}}
        if not is_kept and not _has_places(others):
            crop: dict[str, dict[str, Any]] = {"random_resized_crop": {"size": size}}
            resize = {"resize": {"short_side": side * 8 // 7, "antialias": True}}
            moves = crop if is_for_training else {**resize, "center_crop": {"size": size}}
        found = {"decode_image": decode, **moves}.items()
        steps = [{name: {"field": field, **options}} for name, options in found]
        return steps + array_steps(field, others if is_for_training else None)


def array_steps(field: str, others: Sequence[str] | None) -> list[dict[str, Any]]:
    """Returns transforms of pixels to 0 to 1, and a flip, except for others with places in the
    image, or for None."""
    can_flip = others is not None and not _has_places(others)
    flip: list[dict[str, Any]] = [{"random_flip_left_right": {"field": field}}]
    return flip * can_flip + [{"normalize": {"field": field, "scale": 255.0}}]


def _has_places(names: Sequence[str]) -> bool:
    """Returns whether fields, by their names, have places in an image."""
    return any(_PLACES.fullmatch(word) for name in names for word in words(name))


def _header(image: str | bytes, size: int = 64 << 10) -> _Header | None:
    """Returns the header of an image, given as content or path, in its first bytes."""
    try:
        content = image if isinstance(image, bytes) else read_head(image, size)
        with Image.open(io.BytesIO(content)) as opened:
            turn = _orientation(opened)
            shape = opened.size if turn > 4 else opened.size[::-1]
            return str(opened.format), shape, opened.mode[0] in "1LIF", turn != 1
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
