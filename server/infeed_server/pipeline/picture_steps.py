"""Picture steps: the rules by which a decode, crops, a resize and a flip become one step.

`gather_pictures` brings them together. `fuse_decode_and_crop` is the graph's rule: it decodes only
a crop's window. `find_chain` is the rule of the native decoder, which makes a picture by one call
outside the graph. A damaged picture can differ if more than the window is decoded, so both decoders
follow the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, cast

import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.moved_targets import MeasurePicture
from infeed_server.pipeline.sample_graph import step_key
from infeed_server.transforms.base import Step, Transform
from infeed_server.transforms.decode import DecodeAndCrop, DecodeImage
from infeed_server.transforms.geometry import (
    CenterCrop,
    Crop,
    RandomCrop,
    RandomFlipLeftRight,
    RandomResizedCrop,
)
from infeed_server.transforms.sizes import MAX_PIXELS, Resize

_CROP_OPTIONS = {"field", "size", "given_name"}
_ANY_VALUE: dict[type[Transform], set[str]] = {
    DecodeImage: {"field", "max_pixels", "exif"},
    Resize: {"field", "size", "short_side", "max_side", "antialias"},
    CenterCrop: _CROP_OPTIONS,
    RandomCrop: _CROP_OPTIONS,
    RandomResizedCrop: {*_CROP_OPTIONS, "scale", "ratio"},
    RandomFlipLeftRight: {"field", "given_name"},
}
"""The steps of a chain, with the options that may have any value: of the others, the native decoder
supports only the default."""

_LETTERS = {CenterCrop: "c", RandomCrop: "c", RandomResizedCrop: "x", RandomFlipLeftRight: "f"}
_CHAIN = re.compile("((c?r|x)c?|c?sc|c)f?")
"""The steps of a chain after `decode_image`: `r` is a resize to a size, `s` of the short side."""


class Draws(NamedTuple):
    """What the steps of a chain take of pictures, in the native decoder's form."""

    windows: tf.Tensor
    """int32[n, 4]: top, left, height and width of what is resized."""
    flips: tf.Tensor
    """uint8[n]"""
    parts: tf.Tensor
    """int32[n, 4]: height and width of what is resized, then top and left of the part that is
    taken."""


@dataclass(frozen=True)
class PictureChain:
    """Steps that make a picture of a fixed size from a file's bytes, and the others, which can run
    after them."""

    steps: tuple[Step, ...]
    """The first is `decode_image`."""
    rest: tuple[Step, ...]
    measure: MeasurePicture | None = None
    """The step that keeps the size of the picture, for its targets."""

    @property
    def decode(self) -> DecodeImage:
        return cast("DecodeImage", self.steps[0][1])

    @property
    def size(self) -> tuple[int, int]:
        sizes = [step.size for _, step in self.steps if isinstance(step, (Resize, Crop))]
        return cast("tuple[int, int]", sizes[-1])

    @property
    def antialias(self) -> bool:
        return any(step.antialias for _, step in self.steps if isinstance(step, Resize))

    @property
    def is_random(self) -> bool:
        """Whether what it takes of an image depends on the key as well as on the image's size."""
        return any(step.random for _, step in self.steps)

    def draw(self, images: tf.Tensor, keys: tf.Tensor) -> Draws:
        """Returns what the graph takes of images, from their sizes, int32[n, 2], and keys."""
        images = tf.maximum(images, 1)  # zeros of headers that the decoder refuses
        first = self._draw_numbers(keys[0])
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, first)
        drawn = tf.map_fn(self._draw_numbers, keys, fn_output_signature=specs)
        begins = tf.zeros_like(images)
        windows, sizes = tf.concat([begins, images], 1), images
        flips = tf.zeros_like(images[:, 0], tf.uint8)
        is_resized = False
        for (_, step), numbers in zip(self.steps, drawn, strict=True):
            if isinstance(step, RandomFlipLeftRight):
                flips = tf.cast(numbers, tf.uint8)
            elif isinstance(step, Crop) and is_resized:
                begins = step.place_window(sizes, numbers)[:, :2]
            elif isinstance(step, Crop):
                windows = step.place_window(images, numbers)
                sizes = tf.zeros_like(images) + step.size
            elif isinstance(step, Resize):
                sizes = tf.cast(tf.minimum(step.result_size(sizes, {}), MAX_PIXELS + 1), tf.int32)
            is_resized = is_resized or isinstance(step, (Resize, RandomResizedCrop))
        return Draws(windows, flips, tf.concat([sizes, begins], 1))

    def _draw_numbers(self, key: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the random numbers of each step for an image of any size."""
        numbers = []
        for step in self.steps:
            own, transform = step_key(step, key), step[1]
            if isinstance(transform, Crop):
                numbers.append(transform.draw_numbers(own))
            elif isinstance(transform, RandomFlipLeftRight):
                numbers.append(transform.is_flipped(own))
            else:
                numbers.append(tf.zeros([0]))
        return tuple(numbers)


def fuse_decode_and_crop(steps: Sequence[Step]) -> list[Step]:
    """Fuses each `decode_image` with a crop of its field that directly follows. The fused step
    keeps the crop's ordinal, and draws what the crop would have drawn."""
    fused: list[Step] = []
    for ordinal, step in steps:
        previous = fused[-1][1] if fused else None
        if (
            isinstance(step, Crop)
            and isinstance(previous, DecodeImage)
            and _can_fuse(previous, step)
        ):
            fused[-1] = (ordinal, DecodeAndCrop(decode=previous, crop=step))
        else:
            fused.append((ordinal, step))
    return fused


def gather_pictures(steps: Sequence[Step]) -> list[Step]:
    """Moves each picture's crops, resize and flip directly after its `decode_image`, past steps on
    other fields, so that every rule finds them together."""
    gathered: list[Step] = []
    for step in steps:
        place = len(gathered)
        if isinstance(step[1], (Resize, Crop, RandomFlipLeftRight)):
            while place and not _touches(gathered[place - 1][1], step[1]):
                place -= 1
            if not place or not isinstance(gathered[place - 1][1], (DecodeImage, Resize, Crop)):
                place = len(gathered)
        gathered.insert(place, step)
    return gathered


def find_chain(steps: Sequence[Step]) -> PictureChain | str:
    """Returns the chain of the first `decode_image` that has one, or why the native decoder cannot
    make the first; empty if no picture is decoded. The steps must be gathered."""
    places = [place for place, (_, step) in enumerate(steps) if isinstance(step, DecodeImage)]
    found = [_chain_at(steps, place) for place in places]
    chains = [chain for chain in found if isinstance(chain, PictureChain)]
    return (chains or found or [""])[0]


def _chain_at(steps: Sequence[Step], begin: int) -> PictureChain | str:
    decode = steps[begin][1]
    measures = [one for one in steps[:begin] if isinstance(one[1], MeasurePicture)]
    measures = [one for one in measures if _touches(one[1], decode)]
    before = [one for one in steps[:begin] if one not in measures]
    if made := [step for _, step in before if _touches(step, decode)]:
        return f"{made[0].name} comes before decode_image"
    found = _CHAIN.match("".join(_letter(step, decode) for _, step in steps[begin + 1 :]))
    looked_at = [decode] if found else [step for _, step in steps[begin : begin + 2]]
    if odd := [f"{step.name} has {option}" for step in looked_at for option in _odd_options(step)]:
        return odd[0]
    if not found:
        return "no crop or resize to a size directly follows decode_image"
    end = begin + 1 + found.end()
    rest = fuse_decode_and_crop([*before, *steps[end:]])
    measure = cast("MeasurePicture", measures[0][1]) if measures else None
    return PictureChain(tuple(steps[begin:end]), tuple(rest), measure)


def choose_chain(steps: Sequence[Step], decoder: str) -> PictureChain | str:
    """Returns the chain of steps that the native decoder runs, or the reason why TensorFlow
    decodes; empty if no picture is decoded. `decoder` is a value of `--decoder`. Raises
    `ConfigError` for `native` where it cannot decode."""
    chain = find_chain(steps)
    reason = chain if isinstance(chain, str) else _unavailable(decoder)
    if not (chain and reason):
        return chain
    if decoder == "native":
        raise ConfigError(
            f"--decoder native: {reason}; leave out --decoder to decode with TensorFlow"
        )
    return f"TensorFlow decodes the pictures: {reason}"


def _unavailable(decoder: str) -> str:
    """Returns why the native decoder is not used; empty if it is."""
    if decoder == "tensorflow":
        return "--decoder tensorflow"
    try:
        reason = import_module("infeed_jpeg").unavailable()
    except ImportError:
        return "the package infeed-jpeg is not installed"
    return f"infeed-jpeg: {reason}" if reason else ""


def _touches(step: Transform, decode: Transform) -> bool:
    touched, fields = step.fields(), decode.fields()
    return touched is None or fields is None or bool(touched & fields)


def _letter(step: Transform, decode: Transform) -> str:
    """Returns the step's letter in `_CHAIN`; a dash if the native decoder does not support it."""
    if not _touches(step, decode) or _odd_options(step):
        return "-"
    if isinstance(step, Resize):
        return "s" if step.size is None else "r"
    return _LETTERS.get(type(step), "-")


def _odd_options(step: Transform) -> list[str]:
    """Returns the options, with their values, that the native decoder does not support."""
    fields = type(step).model_fields.items() if type(step) in _ANY_VALUE else ()
    return [
        f"{name}: {getattr(step, name)}"
        for name, field in fields
        if name not in _ANY_VALUE[type(step)] and getattr(step, name) != field.default
    ]


def _can_fuse(decode: DecodeImage, crop: Crop) -> bool:
    # Windows of JPEGs are decoded to 1 or 3 channels of uint8 only. With 0, the crop could not know
    # the shape. TensorFlow decodes no window at a smaller scale.
    is_supported = decode.channels in (1, 3) and decode.dtype == "uint8" and decode.scale == 1
    return decode.field == crop.field and is_supported
