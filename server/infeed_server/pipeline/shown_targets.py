"""Check of targets against what the source states: the units of boxes, and masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infeed.shared.errors import ConfigError, within
from infeed.shared.spec import TargetSpec
from infeed_server.pipeline.moved_targets import MoveTargets, target_spec
from infeed_server.pipeline.sample_graph import Specs
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.fields import Rename
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.sizes import Resize


def refuse_other_targets(
    shown: Mapping[str, TargetSpec], steps: Sequence[Step], origins: Sequence[Mapping[str, str]]
) -> None:
    """Raises `ConfigError` for a target that contradicts the source; `origins[i]` maps each field
    before step i to its field of the source."""
    for (_, step), fields in zip(steps, origins, strict=False):
        if not isinstance(step, MoveTargets):
            continue
        for target in (target_spec(*named) for named in step.targets.items()):
            known = shown.get(fields.get(target.field, ""))
            if known is not None and written(target) != written(known):
                raise ConfigError(
                    f"{written(target)} contradicts the source, whose {known.field!r} is "
                    f"{written(known)}; write that",
                    at=("targets", target.field),
                )


def refuse_left_targets(
    shown: Mapping[str, TargetSpec],
    steps: Sequence[Step],
    stages: Sequence[Specs],
    origins: Sequence[Mapping[str, str]],
) -> None:
    """Raises `ConfigError` for a step that moves a picture, but not the source's targets of it that
    are sent. Masks may keep a size of their own."""
    sent = {*origins[-1].values()}
    for place, (ordinal, step) in enumerate(steps):
        movement = step.movement
        if not isinstance(movement, Geometry):
            continue
        beside = [other for _, other in steps[place + 1 : place + 2]]
        moved = {name for one in beside if isinstance(one, MoveTargets) for name in one.targets}
        left = {
            name: known
            for name, origin in origins[place].items()
            if name not in moved and origin in sent and (known := shown.get(origin)) is not None
            if known.picture == movement.field
            if not (known.kind == "mask" and isinstance(movement, Resize))
        }
        if left:
            names = ", ".join(left)
            targets = [f"{n}: {_with_rows(known, n, stages[place])}" for n, known in left.items()]
            with within("transforms", ordinal):
                raise step.error(
                    f"{names} of {movement.field!r} would not move with it; write targets: "
                    f"{{{', '.join(targets)}}}, or drop what is not needed"
                )


def _with_rows(target: TargetSpec, name: str, fields: Specs) -> str:
    """Returns a target in YAML, with the fields of its rows."""
    if target.kind != "boxes":
        return target.kind
    count = fields[name].shape[0]
    rows = [
        field
        for field, spec in fields.items()
        if spec.shape.rank and spec.shape[0] == count and field not in (name, target.picture)
    ]
    own = written(target).removesuffix("}")
    return f"{{{own}, with: [{', '.join(rows)}], pad: {count or 'N'}}}}}"


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
            masks |= {
                name for name in step.class_fields & shown.keys() if shown[name].kind == "mask"
            }


def written(target: TargetSpec) -> str:
    """Returns a target in YAML."""
    options = [f"format: {target.format}"] * bool(target.format)
    options += ["normalized: true"] * target.normalized
    return f"{target.kind}: {{{', '.join(options)}}}" if options else target.kind
