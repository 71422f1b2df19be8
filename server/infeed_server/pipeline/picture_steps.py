"""Picture steps: the rules by which a decode, a crop or a resize, and a flip become one step.

`gather_pictures` brings them together. `fuse_decode_and_crop` is the graph's rule: the window of a
crop alone is decoded. `find_chain` is the native decoder's, which makes a picture by one call
outside of the graph. Damaged pictures can differ where more than the window is decoded, so both
decoders follow the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import tensorflow as tf

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
from infeed_server.transforms.sizes import Resize

_CROP_OPTIONS = {"field", "size", "given_name"}
_ANY_VALUE: dict[type[Transform], set[str]] = {
    DecodeImage: {"field", "max_pixels"},
    Resize: {"field", "size"},
    CenterCrop: _CROP_OPTIONS,
    RandomCrop: _CROP_OPTIONS,
    RandomResizedCrop: {*_CROP_OPTIONS, "scale", "ratio"},
    RandomFlipLeftRight: {"field", "given_name"},
}
"""The steps of a chain, with the options of which any value is possible: of the others, the native
decoder does the default."""


_SIZES = (Resize, Crop)
_FLIPS = (RandomFlipLeftRight,)


@dataclass(frozen=True)
class PictureChain:
    """Steps that make a picture of a fixed size from the bytes of a file, and the others, which can
    run behind them."""

    steps: tuple[Step, ...]
    """The first is `decode_image`, the second decides the size, a third flips."""
    rest: tuple[Step, ...]

    @property
    def decode(self) -> DecodeImage:
        return cast("DecodeImage", self.steps[0][1])

    @property
    def size(self) -> tuple[int, int]:
        return cast("tuple[int, int]", cast("Resize | Crop", self.steps[1][1]).size)

    def draw(self, sizes: tf.Tensor, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the windows that the graph takes of images, int32[n, 4], and whether it flips
        them, from their sizes, int32[n, 2], and keys."""
        shape = self.steps[1][1]
        first = self._draw_numbers(keys[0])
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, first)
        numbers, is_flipped = tf.map_fn(self._draw_numbers, keys, fn_output_signature=specs)
        if isinstance(shape, Crop):
            return shape.place_window(sizes, numbers), is_flipped
        return tf.concat([tf.zeros_like(sizes), sizes], 1), is_flipped

    def _draw_numbers(self, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers, is_flipped = tf.zeros([0]), tf.constant(False)
        for step in self.steps:
            own, transform = step_key(step, key), step[1]
            if isinstance(transform, Crop):
                numbers = transform.draw_numbers(own)
            elif isinstance(transform, RandomFlipLeftRight):
                is_flipped = transform.is_flipped(own)
        return numbers, is_flipped


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
    """Moves each picture's crop, resize and flip right behind its `decode_image`, across steps on
    other fields, so that every rule finds them together."""
    gathered: list[Step] = []
    for step in steps:
        place = len(gathered)
        if isinstance(step[1], (*_SIZES, *_FLIPS)):
            while place and not _touches(gathered[place - 1][1], step[1]):
                place -= 1
            if not place or not isinstance(gathered[place - 1][1], (DecodeImage, *_SIZES)):
                place = len(gathered)
        gathered.insert(place, step)
    return gathered


def find_chain(steps: Sequence[Step]) -> PictureChain | str:
    """Returns the chain of the first `decode_image`, or why the native decoder cannot do it; empty
    where no picture is decoded. The steps are gathered."""
    places = [place for place, (_, step) in enumerate(steps) if isinstance(step, DecodeImage)]
    if not places:
        return ""
    begin = end = places[0]
    decode = steps[begin][1]
    if made := [step for _, step in steps[:begin] if _touches(step, decode)]:
        return f"{made[0].name} stands before decode_image"
    end += 1
    for kinds in (_SIZES, _FLIPS):
        is_next = end < len(steps) and isinstance(steps[end][1], kinds)
        if is_next and _touches(steps[end][1], decode):
            end += 1
        elif kinds is _SIZES:
            return "no crop or resize is right behind decode_image"
    chain = steps[begin:end]
    if odd := [f"{step.name} has {option}" for _, step in chain for option in _odd_options(step)]:
        return odd[0]
    return PictureChain(tuple(chain), tuple(fuse_decode_and_crop([*steps[:begin], *steps[end:]])))


def _touches(step: Transform, decode: Transform) -> bool:
    touched, fields = step.fields(), decode.fields()
    return touched is None or fields is None or bool(touched & fields)


def _odd_options(step: Transform) -> list[str]:
    """Returns the options, with their values, that the native decoder does not do."""
    return [
        f"{name}: {getattr(step, name)}"
        for name, field in type(step).model_fields.items()
        if name not in _ANY_VALUE[type(step)] and getattr(step, name) != field.default
    ]


def _can_fuse(decode: DecodeImage, crop: Crop) -> bool:
    # Windows of JPEGs are decoded to 1 or 3 channels of uint8 only. With 0, the crop could not know
    # the shape. TensorFlow decodes no window at a smaller scale.
    is_supported = decode.channels in (1, 3) and decode.dtype == "uint8" and decode.scale == 1
    return decode.field == crop.field and is_supported
