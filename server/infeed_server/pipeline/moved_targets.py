"""Moved targets: the steps that move a picture's targets as the picture moves.

A field beside the picture keeps its size: the step that moves a picture may be fused with its
decoding or run in the native decoder, so the pixels before it never exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import tensorflow as tf
from typing_extensions import override

from infeed.shared.errors import ConfigError
from infeed.shared.spec import TargetSpec
from infeed_server.config.model import did_you_mean
from infeed_server.sources.base import Sample
from infeed_server.transforms.base import (
    Drawn,
    FieldTransform,
    Key,
    Step,
    Transform,
    require_bytes,
    require_image,
)
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.fields import Rename
from infeed_server.transforms.images.sizes import decoded_size
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.target import Moved, Target

SIZE = "targets/"
"""Prefix of the field that holds the size of a picture."""
_CHANNELS = (1, 3, 4)
"""Channels of a picture [height, width, channels]; a `map` may have moved them to the front."""


class MeasurePicture(FieldTransform):
    """Keeps the size of a picture that is decoded, or that `decode` is about to decode."""

    decode: DecodeImage | None = None

    @property
    def result(self) -> str:
        return _size_of(self.field)

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        value = self.get_field(sample, self.field)
        if self.decode is None:
            size = tf.shape(require_image(value, self))[:2]
        else:
            contents = require_bytes(value, self.decode, instead="remove the second decode_image")
            size = decoded_size(contents, self.decode.decoding)
        return {**sample, self.result: size}

    @override
    def fields(self) -> set[str] | None:
        return {self.field, self.result}


class MoveTargets(Transform):
    """Moves the targets of a picture as a step moves the picture, by the same draw; after the last
    step, gives them their shapes in a batch."""

    keeps_classes: ClassVar[bool] = True

    step: Geometry | None
    """None: the picture never moves."""
    targets: Mapping[str, Target]
    is_last: bool

    @property
    def random(self) -> bool:
        return self.step is not None and self.step.random

    @property
    def draw_name(self) -> str:
        assert self.step is not None
        return self.step.draw_name

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        for name, target in self.targets.items():
            if missing := [field for field in (name, target.of) if field not in sample]:
                known = sorted(field for field in sample if not field.startswith(SIZE))
                hint = did_you_mean(missing[0], known)
                problem = f"no field {missing[0]!r}{hint}; available: {', '.join(known)}"
                raise ConfigError(f"targets.{name}: {problem}")
        sample = self._move(self.step, sample, key) if self.step else self._check_still(sample)
        for name, target in self.targets.items() if self.is_last else ():
            sample = target.finish(sample, name)
        return sample

    def _move(self, step: Geometry, sample: Sample, key: Key) -> Sample:
        size = _size_of(step.field)
        before = sample[size]
        drawn = step.draw_shape(before, key)
        after = tf.cast(step.result_size(before, drawn), tf.int32)
        moved = Moved(step, drawn, before, after)
        for name, target in self.targets.items():
            sample = target.move(sample, name, moved)
        sample = {**sample, size: after}
        return {name: x for name, x in sample.items() if not (self.is_last and name == size)}

    def _check_still(self, sample: Sample) -> Sample:
        for name, target in self.targets.items():
            shape = sample[target.of].shape
            is_decoded = shape.rank == 3 and shape[2] in _CHANNELS
            size = tf.shape(sample[target.of])[:2] if is_decoded else None
            sample = target.move(sample, name, Moved(None, {}, size, size))
        return sample

    @override
    def draw(self, sample: Sample, key: Key) -> Drawn:
        return {}  # the step beside it draws the same

    @override
    def fields(self) -> set[str] | None:
        own = {field for name, target in self.targets.items() for field in target.fields(name)}
        return own | ({_size_of(self.step.field)} if self.step else set())

    @override
    def identity(self) -> dict[str, Any]:
        step = self.step and self.step.identity()
        return {self.name: [step, targets_identity(self.targets), self.is_last]}


def with_targets(steps: Sequence[Step], targets: Mapping[str, Target]) -> list[Step]:
    """Returns the steps with those that move the targets, which have the numbers of the steps that
    they follow. Raises `ConfigError` for a step that moves a target by itself."""
    pictures: dict[str, dict[str, Target]] = {}
    for name, target in targets.items():
        pictures.setdefault(target.of, {})[name] = target
    _refuse_two_names(steps, pictures)
    last = {_moved(step): place for place, (_, step) in enumerate(steps)}
    result: list[Step] = []
    measured: set[str] = set()
    for place, (ordinal, step) in enumerate(steps):
        if (name := _moved(step)) in targets:
            raise ConfigError(
                f"{name!r} is a target of {targets[name].of!r}, and moves with it; leave this out",
                at=("transforms", ordinal, step.name),
            )
        movement = step.movement
        moved = movement if isinstance(movement, Geometry) and name in pictures else None
        if isinstance(step, DecodeImage) and step.field in pictures.keys() & last:
            result.append((ordinal, MeasurePicture(field=step.field, decode=step)))
            measured.add(step.field)
        elif moved is None:
            measured -= measured if (touched := step.fields()) is None else touched
        elif name not in measured:
            result.append((ordinal, MeasurePicture(field=name)))
            measured.add(name)
        result.append((ordinal, step))
        if moved:
            is_last = last[name] == place
            move = MoveTargets(step=moved, targets=pictures[name], is_last=is_last)
            result.append((ordinal, move))
    end = steps[-1][0] if steps else 0
    still = [own for picture, own in pictures.items() if picture not in last]
    return [*result, *((end, MoveTargets(step=None, targets=own, is_last=True)) for own in still)]


def targets_identity(targets: Mapping[str, Target]) -> dict[str, Any]:
    """Returns what a fingerprint hashes."""
    return {
        name: {type(target).__name__: target.model_dump(mode="json", by_alias=True)}
        for name, target in targets.items()
    }


def target_spec(name: str, target: Target) -> TargetSpec:
    """Returns a target's field, picture, kind and units."""
    return TargetSpec(
        *(name, target.of, type(target).__name__.lower()),
        format=getattr(target, "format", ""),
        normalized=getattr(target, "normalized", False),
    )


def made_targets(steps: Sequence[Step]) -> dict[str, TargetSpec]:
    """Returns the targets that steps move, as they are after the last step."""
    made: dict[str, TargetSpec] = {}
    for _, step in steps:
        if isinstance(step, MoveTargets):
            made |= {name: target_spec(name, target) for name, target in step.targets.items()}
        elif isinstance(step, Rename):
            new = step.names
            renamed = [
                replace(s, field=new.get(s.field, s.field), picture=new.get(s.picture, s.picture))
                for s in made.values()
            ]
            made = {spec.field: spec for spec in renamed}
    return made


def _refuse_two_names(steps: Sequence[Step], pictures: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a picture that moves under two names: its targets name only one."""
    first: dict[str, str] = {}  # name → name before the renames
    moved: dict[str, str] = {}  # that name → the name under which it moved
    for ordinal, step in steps:
        if isinstance(step, Rename):
            first |= {new: first.get(old, old) for old, new in step.names.items()}
        elif name := _moved(step):
            other = moved.setdefault(first.get(name, name), name)
            if other != name and (own := pictures.get(name, pictures.get(other))):
                raise ConfigError(
                    f"{name!r} is {other!r} renamed after it moved, so {', '.join(own)} would miss "
                    "a part of its moves; put the rename before or after all steps that move the "
                    "picture",
                    at=("transforms", ordinal, step.name),
                )


def _moved(step: Transform) -> str:
    """Returns the field that a step moves; empty for another step."""
    return movement.field if isinstance(movement := step.movement, Geometry) else ""


def _size_of(picture: str) -> str:
    return f"{SIZE}{picture}"
