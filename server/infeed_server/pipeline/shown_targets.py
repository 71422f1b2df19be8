"""Check of targets against what a source knows of its own: the units of boxes, and masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infeed.shared.errors import ConfigError, within
from infeed.shared.spec import TargetSpec
from infeed_server.pipeline.moved_targets import MoveTargets, target_spec
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.fields import Rename
from infeed_server.transforms.movement import Geometry


def refuse_other_targets(
    shown: Mapping[str, TargetSpec], steps: Sequence[Step], origins: Sequence[Mapping[str, str]]
) -> None:
    """Raises `ConfigError` for a target that is not what the source has; `origins[i]` has the field
    of the source of each field before step i."""
    for (_, step), fields in zip(steps, origins, strict=False):
        if not isinstance(step, MoveTargets):
            continue
        for target in (target_spec(*named) for named in step.targets.items()):
            known = shown.get(fields.get(target.field, ""))
            if known is not None and _options(target) != _options(known):
                raise ConfigError(
                    f"{_options(target)} contradicts the source, whose {known.field!r} is "
                    f"{_options(known)}; write that",
                    at=("targets", target.field),
                )


def refuse_mixed_classes(shown: Mapping[str, TargetSpec], steps: Sequence[Step]) -> None:
    """Raises `ConfigError` for a step that would move a mask of the source as a photo, and so make
    classes between others."""
    masks = {name for name, target in shown.items() if target.kind == "mask"}
    for ordinal, step in steps:
        movement = step.movement
        if isinstance(movement, Geometry) and movement.field in masks:
            if getattr(movement, "method", "") != "nearest":
                with within("transforms", ordinal):
                    raise step.error(
                        f"{movement.field!r} is a mask, whose numbers are classes; leave this out "
                        f"and write targets: {{{movement.field}: mask}}, which moves it as the "
                        "picture by the nearest pixels"
                    )
        elif isinstance(step, Rename):
            masks = {step.names.get(name, name) for name in masks}
        elif not isinstance(step, DecodeImage):
            masks -= masks if (touched := step.fields()) is None else touched


def _options(target: TargetSpec) -> str:
    """Returns a target as YAML has it."""
    options = [f"format: {target.format}"] * bool(target.format)
    options += ["normalized: true"] * target.normalized
    return f"{target.kind}: {{{', '.join(options)}}}" if options else target.kind
