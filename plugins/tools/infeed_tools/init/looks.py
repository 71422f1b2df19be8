"""Looks of fields: the kinds of their values, and the transforms that fit images."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from infeed.shared.spec import BYTES
from infeed_formats.annotations.headers import read_headers
from infeed_server.sources.base import Exif
from infeed_server.sources.class_names import is_integer
from infeed_server.storage.files import abbreviate
from infeed_tools.init.listing import words

_DECODED = {"JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP"}
_SIDES = (224, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Suggested heights and widths, for which models are built."""
_MAX_KEPT = 128
"""Pixels. Images of one size that is no larger are small on purpose, and keep it."""
_MAX_CLASSES = 32
"""Values in an array of pixels that is taken for a mask: photos have more."""
_LOOKED_AT = 8
"""Arrays of pixels whose values are counted."""
_PLACES = re.compile(
    r"b?box(es)?|[xy](min|max)|(polygon|keypoint|landmark|point|mask)s?|pose|segmentation|depth"
)
"""Words in the name of a field that holds places in an image."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A number in TensorFlow's form, without `1_000` and Python's other forms."""

Steps = list[dict[str, Any]]


class ImageLook(NamedTuple):
    """What the headers of some images tell; `sizes` are height and width with this `exif`."""

    formats: set[str]
    sizes: Sequence[tuple[int, int]]
    grey: int
    turned: int
    exif: Exif
    opened: Sequence[bool]
    """Whether each that was read is an image."""

    @classmethod
    def at(cls, images: Sequence[str | bytes], exif: Exif = "") -> ImageLook:
        """Reads the headers of images, given as contents or paths, and skips those that are not.
        `exif` is what their labels need."""
        headers = read_headers(images)
        found = [header for header in headers if header]
        turned = sum(header.is_turned for header in found)
        if exif == "unclear" or (turned and not exif):
            exif = "apply"
        seen = [one.size if exif == "ignore" else one.turned_size for one in found]
        grey = sum(header.is_grey for header in found)
        sizes = [(height, width) for width, height in seen]
        formats = {header.format for header in found}
        return cls(formats, sizes, grey, turned, exif, [*map(bool, headers)])

    def __str__(self) -> str:
        sides = []
        for name, values in zip(("height", "width"), zip(*self.sizes, strict=True), strict=True):
            low, high = min(values), max(values)
            sides.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
        counts = [(self.grey, "grey"), (self.turned, "turned by EXIF")]
        found = [f"{count} of {len(self.sizes)} {what}" for count, what in counts if count]
        return ", ".join(["/".join(sorted(self.formats)), *sides, *found])

    @property
    def is_grey(self) -> bool:
        return self.grey == len(self.sizes)

    @property
    def undecoded(self) -> str:
        """The formats that `decode_image` cannot read."""
        return "/".join(sorted(self.formats - _DECODED))

    def steps(self, field: str, places: Collection[str], *, is_for_training: bool) -> Steps:
        """Returns transforms to one size and values from 0 to 1. If other fields may hold `places`
        in the image, no transform moves it."""
        decode: dict[str, Any] = {"channels": 1 if self.is_grey else 3}
        decode |= {"exif": self.exif} if self.exif else {}
        short = median(map(min, self.sizes))
        side = next((side for side in _SIDES if side <= short), _SIDES[-1])
        is_kept = len({*self.sizes}) == 1 and max(self.sizes[0]) <= _MAX_KEPT
        size = [*self.sizes[0]] if is_kept else [side, side]
        moves: dict[str, dict[str, Any]] = {"resize": {"size": size}}
        if not is_kept and not places:
            crop: dict[str, dict[str, Any]] = {"random_resized_crop": {"size": size}}
            resize = {"resize": {"short_side": side * 8 // 7, "antialias": True}}
            moves = crop if is_for_training else {**resize, "center_crop": {"size": size}}
        found = {"decode_image": decode, **moves}.items()
        steps = [{name: {"field": field, **options}} for name, options in found]
        return steps + pixel_steps(field, can_flip=is_for_training and not places)


def pixel_steps(field: str, *, can_flip: bool) -> Steps:
    """Returns transforms of pixels to values from 0 to 1, and a flip if allowed."""
    flip: Steps = [{"random_flip_left_right": {"field": field}}]
    return flip * can_flip + [{"normalize": {"field": field, "scale": 255.0}}]


def choose_image(pictures: Mapping[str, bool]) -> str:
    """Returns the field of pictures that is the image, not a mask; empty if that is not certain.
    `pictures` tells of each field whether it is grey."""
    names = [name for name in pictures if not _names_places(name)]
    for is_image in (
        lambda name: "image" in words(name),
        lambda name: name.removesuffix(".bytes") == "image",
        lambda name: not pictures[name],
    ):
        names = [*filter(is_image, names)] or names
    return names[0] if len(names) == 1 else ""


def may_have_places(name: str, kind: str, values: Sequence[Any]) -> bool:
    """Returns whether a field may hold places in an image. Single numbers and plain text do not,
    unless their name says so."""
    is_single = len(values) > 0 and (not is_array(kind) or is_one(kind))
    return _names_places(name) or not is_single or not all(map(_is_plain, values))


def is_array(kind: str) -> bool:
    """Returns whether a type, such as `int64[4]`, holds several values."""
    return "[" in kind.replace("[]", "")


def is_one(kind: str) -> bool:
    """Returns whether a type is an array of one number, like the labels of Keras' CIFAR."""
    return kind.endswith("[1]") and not kind.startswith(BYTES)


def _names_places(name: str) -> bool:
    return any(map(_PLACES.fullmatch, words(name)))


def _is_plain(value: Any) -> bool:
    """Returns whether a value is a number, or text other than JSON or several numbers."""
    if not isinstance(value, bytes):
        return True
    text = value.decode(errors="surrogateescape").strip()
    is_text = "".join(text.split()).isprintable() and not text.startswith(("{", "["))
    return is_text and not are_numbers(text)


def are_pixels(values: Sequence[Any]) -> bool:
    """Returns whether values are arrays of pixels, not masks."""
    array = np.asarray(values[:_LOOKED_AT])
    return array.dtype == np.uint8 and array.ndim > 2 and len(np.unique(array)) > _MAX_CLASSES


def describe(values: Sequence[Any]) -> str:
    """Returns a text about some values of a field; empty without values."""
    if not len(values):
        return ""
    if not all(isinstance(value, bytes) for value in values):
        numbers = np.concatenate([*map(np.ravel, values)])
        is_range = numbers.dtype.kind in "iuf" and len(numbers)
        return f"{numbers.min():g} to {numbers.max():g}" if is_range else ""
    with suppress(UnicodeDecodeError):
        texts = sorted({value.decode() for value in values})
        if all(map(str.isprintable, texts)):
            return "text: " + abbreviate([text[:20] for text in texts], 3)
    lengths = sorted(map(len, values))
    return f"{lengths[0]} to {lengths[-1]} bytes"


def is_number(text: str) -> bool:
    """Returns whether a label is a number that fits TensorFlow: an int64 if it is whole."""
    return bool(_NUMBER.fullmatch(text)) and (not is_whole(text) or is_integer(text))


def are_numbers(text: str) -> bool:
    """Returns whether a text is several numbers, such as a box, with fewer words than numbers."""
    found = [part for part in re.split(r"[\s,;()\[\]]+", text) if part]
    count = sum(map(is_number, found))
    return count > 1 and count * 2 > len(found)


def is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
