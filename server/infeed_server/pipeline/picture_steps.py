"""Picture steps: the rules by which a decode, a crop or a resize, and a flip become one step.

`fuse_decode_and_crop` is the graph's rule: the window of a crop alone is decoded. `find_chain` is
the native decoder's, which makes a picture by one call outside of the graph.
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


def find_chain(steps: Sequence[Step]) -> PictureChain | str:
    """Returns the chain of the first `decode_image`, or why the native decoder cannot do it; empty
    where no picture is decoded."""
    decodes = [place for place, (_, step) in enumerate(steps) if isinstance(step, DecodeImage)]
    if not decodes:
        return ""
    before, behind = [*steps[: decodes[0]]], steps[decodes[0] + 1 :]
    chain, rest = [steps[decodes[0]]], before
    if made := [step for _, step in before if _touches(step, chain[0][1])]:
        return f"{made[0].name} stands before decode_image"
    is_over = False
    for ordinal, step in behind:
        following = (RandomFlipLeftRight,) if len(chain) > 1 else (Resize, Crop)
        is_own = _touches(step, chain[0][1])
        is_over = is_over or len(chain) > 2 or (is_own and not isinstance(step, following))
        (chain if is_own and not is_over else rest).append((ordinal, step))
    if len(chain) == 1:
        return "no crop or resize is right behind decode_image"
    odd = [f"{step.name} has {option}" for _, step in chain for option in _odd_options(step)]
    return odd[0] if odd else PictureChain(tuple(chain), tuple(rest))


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
