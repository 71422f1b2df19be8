"""Look at encoded images: their formats, sizes and channels, and the transforms that fit them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

from PIL import ExifTags, Image

from infeed_server.config.document import flow
from infeed_server.starter.listing import READ_THREADS, read_head, words

_DECODED = {"JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP"}
FLIP = "not for text, digits or other images with a left and a right"
_SIDES = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Heights and widths that are suggested; models are built for them."""
_MAX_KEPT = 128
"""Pixels. Images of one size, and not larger, are small on purpose: they keep their size."""
_PLACES = {*("box", "boxes", "bbox", "bboxes", "xmin", "xmax", "ymin", "ymax", "polygon")}
_PLACES |= {*("polygons", "keypoint", "keypoints", "landmark", "landmarks", "point", "points")}
_PLACES |= {"pose", "mask", "masks", "segmentation", "depth"}
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

    def steps(self, field: str, others: Iterable[str], *, is_for_training: bool) -> list[str]:
        """Returns the lines of transforms to one size and values from 0 to 1. No random one moves
        the image alone, if another field has places in it."""
        places = next(filter(has_places, others), "")
        is_grey = self.grey == len(self.sizes)
        exif = {"exif": "apply"} if self.turned else {}
        lines = [step("decode_image", field=field, channels=1 if is_grey else 3, **exif)]
        short = median(min(size) for size in self.sizes)
        side = next((side for side in _SIDES if side <= short), _SIDES[-1])
        size: dict[str, Any] = {"field": field, "size": [side, side]}
        if len({*self.sizes}) == 1 and max(self.sizes[0]) <= _MAX_KEPT:
            size["size"] = [*self.sizes[0]]
            lines.append(step("resize", "the size that they have; a batch needs one", **size))
        elif places:
            lines.append(step("resize", f"pixels in {places!r} fit no longer", **size))
        elif is_for_training:
            lines.append(step("random_resized_crop", "height, width", **size))
        else:
            lines.append(step("resize", field=field, short_side=side * 8 // 7, antialias=True))
            lines.append(step("center_crop", "height, width", **size))
        if places:
            lines.append(f"# no crop or flip, which would not move {places!r}")
        elif is_for_training:
            lines.append(step("random_flip_left_right", FLIP, field=field))
        usual = "# also usual: mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"
        return [*lines, normalize(field), *[usual] * (not is_grey)]


def has_places(name: str) -> bool:
    """Returns whether a field, by its name, has places in an image."""
    return not _PLACES.isdisjoint(words(name))


def step(name: str, about: str = "", **options: Any) -> str:
    """Returns the line of a transform."""
    return f"- {name}: {flow(options)}" + (f"  # {about}" if about else "")


def normalize(field: str) -> str:
    """Returns the line of the transform of pixels to 0 to 1."""
    about = "to 0 to 1, in the trainer: images travel as uint8"
    return step("normalize", about, field=field, scale=255.0)


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
