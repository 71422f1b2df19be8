"""Changes of a definition that may help: lists of transforms to measure beside the given one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed_server.transforms import Cache, CenterCrop, DecodeImage, RandomCrop, RandomResizedCrop
from infeed_server.transforms.base import Step, Transform
from infeed_server.transforms.geometry import (
    Crop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    Resize,
)

_MOVES_PIXELS = (RandomFlipLeftRight, RandomFlipUpDown, RandomCrop, CenterCrop)
"""Transforms that only move or drop values: an elementwise one may as well stand behind them."""

Sizes = Collection[tuple[int, int]]
"""The different (height, width) of the decoded images."""


@dataclass(frozen=True)
class Proposal:
    """A changed list of transforms."""

    kind: str
    text: str
    transforms: tuple[Transform, ...]


def crop_first(transforms: Sequence[Transform], sizes: Mapping[int, Sizes]) -> Iterator[Proposal]:
    """Proposes a crop in place of a resize of all pixels that a crop follows.

    `sizes` has the sizes of images behind each `decode_image`, by its index in the list.
    """
    for index in range(len(transforms) - 2):
        decode, resize, crop = transforms[index : index + 3]
        if not (
            isinstance(decode, DecodeImage)
            and isinstance(resize, Resize)
            and isinstance(crop, RandomCrop | CenterCrop)
            and decode.field == resize.field == crop.field
            and resize.dtype is None
            and not resize.antialias
        ):
            continue
        (height, width), (high, wide) = crop.size, resize.size
        share = min(1.0, height * width / (high * wide))
        changed = _cropped(resize, crop, share, sizes.get(index, ()))
        if changed is None or share == 1.0:
            continue
        text = (
            f"resize (transforms[{index + 1}]) makes {high} x {wide} pixels, of which {crop.name} "
            f"keeps {share:.0%}; crop first, so that only the window is decoded and resized: "
            f"{_yaml(changed)} in their place; the pictures are alike, not equal"
        )
        yield Proposal(
            "crop_first",
            text,
            (*transforms[: index + 1], *changed, *transforms[index + 3 :]),
        )


def finish_last(transforms: Sequence[Transform], host: Collection[int]) -> Iterator[Proposal]:
    """Proposes to move elementwise transforms at the server to the end, for the trainer to run.

    `host` has the indices of the transforms that run at the server. Only transforms that commute
    may stand behind.
    """
    for index in sorted(host):
        transform = transforms[index]
        finish = transform.finish_transform()
        if finish is None:
            continue
        field = finish.field
        behind = [
            number
            for number in range(index + 1, len(transforms))
            if _touches(transforms[number], field)
        ]
        elementwise = [each for each in behind if transforms[each].finish_transform() is not None]
        others = [transforms[each] for each in behind if each not in elementwise]
        if not others or not all(isinstance(each, _MOVES_PIXELS) for each in others):
            continue
        tail = [index, *elementwise]
        break
    else:
        return
    rest = [each for number, each in enumerate(transforms) if number not in tail]
    listed = f"{transforms[index].name} (transforms[{index}])"
    text = (
        f"{listed} runs at the server, because {others[0].name} behind it needs the field; put it "
        "at the end, where the trainer runs it: the result is the same"
    )
    yield Proposal("finish_at_trainer", text, (*rest, *(transforms[each] for each in tail)))


def cache_prefix(
    transforms: Sequence[Transform],
    specs: Sequence[Mapping[str, tf.TensorSpec]],
    samples: int,
    max_bytes: int,
) -> Iterator[Proposal]:
    """Proposes `cache` behind the longest prefix without randomness that it can keep.

    `specs[i]` are the fields before transform i. All samples must fit into `max_bytes`.
    """
    if any(isinstance(each, Cache) for each in transforms):
        return
    end = next((index for index, each in enumerate(transforms) if each.random), len(transforms))
    for count in range(end, 0, -1):
        fields = specs[count].values()
        if any(each.dtype == tf.string or not each.shape.is_fully_defined() for each in fields):
            continue
        needed = samples * sum(each.dtype.size * each.shape.num_elements() for each in fields)
        if needed > max_bytes:
            continue
        mib = max(1, -(-needed // (1 << 20)))
        cache = Cache(limit_mb=max(mib, 4096))
        text = (
            f"the first {count} transforms give the same result in every epoch; cache behind "
            f"{transforms[count - 1].name} (transforms[{count - 1}]) keeps all {samples} samples "
            f"in {mib} MiB, and later epochs neither read nor compute them"
        )
        changed = (*transforms[:count], cache, *transforms[count:])
        yield Proposal("cache", text, changed)
        return


def _cropped(
    resize: Resize, crop: Crop, share: float, sizes: Sizes
) -> tuple[Transform, ...] | None:
    """Returns transforms that give crops of the same share of the image, None if there are none."""
    if isinstance(crop, RandomCrop):
        options: dict[str, Any] = {"scale": (round(share, 3), round(share, 3))}
        if sizes:
            # A resize that changes the shape of images gives windows of a shape other than square.
            shape = crop.size[1] / resize.size[1] / (crop.size[0] / resize.size[0])
            ratios = [shape * width / height for height, width in sizes]
            options["ratio"] = (round(min(ratios), 3), round(max(ratios), 3))
        return (
            RandomResizedCrop(field=crop.field, size=crop.size, method=resize.method, **options),
        )
    if len(set(sizes)) != 1:
        return None  # center_crop has one size in pixels for all images
    ((height, width),) = set(sizes)
    window = (
        max(1, round(height * crop.size[0] / resize.size[0])),
        max(1, round(width * crop.size[1] / resize.size[1])),
    )
    if window[0] > height or window[1] > width:
        return None
    first = CenterCrop(field=crop.field, size=window)
    return first, Resize(field=crop.field, size=crop.size, method=resize.method)


def _touches(transform: Transform, field: str | None) -> bool:
    fields = transform.fields()
    return fields is None or field in fields


def _yaml(transforms: Sequence[Transform]) -> str:
    parts = []
    for each in transforms:
        options = each.model_dump(mode="json", exclude_unset=True)
        listed = ", ".join(f"{name}: {value}" for name, value in options.items())
        parts.append(f"{each.name}: {{{listed}}}")
    return " and ".join(parts)


def numbered(transforms: Sequence[Transform]) -> list[Step]:
    """Returns the transforms that do something, as steps."""
    return [
        (ordinal, each) for ordinal, each in enumerate(transforms) if not isinstance(each, Cache)
    ]
