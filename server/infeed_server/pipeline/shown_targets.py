"""Targets that the source shows: checks against them, and what trainers know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from infeed.shared.errors import ConfigError, within
from infeed.shared.spec import Spec, TargetSpec
from infeed_server.pipeline.moved_targets import MoveTargets, target_spec
from infeed_server.pipeline.sample_graph import Specs, rows_beside
from infeed_server.sources.base import Source
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.fields import Rename
from infeed_server.transforms.instances import Boxes
from infeed_server.transforms.movement import Geometry
from infeed_server.transforms.sizes import Resize
from infeed_server.transforms.target import Target
from infeed_server.transforms.targets import parse_target

_FITS = {
    "apply": "fits the photos as EXIF turns them, by their sizes; write exif: apply",
    "ignore": "fits the photos as they are stored, by their sizes; write exif: ignore",
    "unclear": "may fit the photos as EXIF turns them, as most tools do, or as they are stored: "
    "the labels do not tell; write exif: apply or exif: ignore, as infeed peek --png shows",
}
"""What is wrong by the `exif` that a source needs."""


def refuse_other_exif(
    source: Source, steps: Sequence[Step], origins: Sequence[Mapping[str, str]]
) -> None:
    """Raises `ConfigError` for a `decode_image` whose picture does not lie as the labels that are
    sent with it, or leaves open what the source cannot know."""
    sent = {*origins[-1].values()}
    labels = {known.picture: name for name, known in source.shown.items() if name in sent}
    for (ordinal, step), fields in zip(steps, origins, strict=False):
        if not isinstance(step, DecodeImage) or fields.get(step.field) not in labels:
            continue
        is_open = "exif" not in step.model_fields_set
        if is_open if source.exif == "unclear" else source.exif not in ("", step.exif):
            with within("transforms", ordinal):
                raise step.error(f"{labels[fields[step.field]]!r} {_FITS[source.exif]}")


def refuse_other_targets(
    shown: Mapping[str, TargetSpec],
    steps: Sequence[Step],
    stages: Sequence[Specs],
    origins: Sequence[Mapping[str, str]],
) -> None:
    """Raises `ConfigError` for a target that contradicts the source; `origins[i]` maps each field
    before step i to its field of the source."""
    for place, (_, step) in enumerate(steps):
        if not isinstance(step, MoveTargets):
            continue
        for target in (target_spec(*named) for named in step.targets.items()):
            origin = origins[place].get(target.field, "")
            _refuse_lost_count(target.field, origin, stages[: place + 1])
            known = shown.get(origin)
            if known is not None and written(target) != written(known):
                raise ConfigError(
                    f"{written(target)} contradicts the source, whose {known.field!r} is "
                    f"{written(known)}; write the latter",
                    at=("targets", target.field),
                )


def _refuse_lost_count(name: str, origin: str, stages: Sequence[Specs]) -> None:
    """Raises `ConfigError` for padded rows without their number, which would be all real rows."""
    counted, count = f"{origin}_count", f"{name}_count"
    is_padded = stages[-1][name].shape.rank and stages[-1][name].shape[0] is not None
    if is_padded and count not in stages[-1] and any(counted in fields for fields in stages):
        raise ConfigError(
            f"{name!r} ends with zeros, and needs {counted!r}, the number of its rows, as "
            f"{count!r}: do not drop it, and rename it with {origin!r}",
            at=("targets", name),
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
    first: dict[str, str] = {}  # picture → its name before the renames
    for place, (ordinal, step) in enumerate(steps):
        if isinstance(step, Rename):
            first |= {new: first.get(old, old) for old, new in step.names.items()}
        movement = step.movement
        if not isinstance(movement, Geometry):
            continue
        beside = [other for _, other in steps[place + 1 : place + 2]]
        targets = [other.targets for other in beside if isinstance(other, MoveTargets)]
        moved: dict[str, Target] = dict(*targets)
        picture = first.get(movement.field, movement.field)
        left = {
            name: _target(known, movement.field)
            for name, origin in origins[place].items()
            if name not in moved and origin in sent and (known := shown.get(origin)) is not None
            if known.picture == picture
            if not (known.kind == "mask" and isinstance(movement, Resize))
        }
        if left:
            with within("transforms", ordinal):
                raise step.error(
                    f"{', '.join(left)} of {movement.field!r} would not move with it; write "
                    f"targets: {_in_yaml(moved | left, stages[place])}, or drop what is not needed"
                )


def _target(known: TargetSpec, picture: str) -> Target:
    """Returns a target that the source states, of a picture."""
    options: dict[str, Any] = {"of": picture}
    options |= {"format": known.format} if known.format else {}
    options |= {"normalized": True} if known.normalized else {}
    return parse_target({known.kind: options})


def _in_yaml(targets: Mapping[str, Target], fields: Specs) -> str:
    """Returns targets in YAML, boxes with the fields of their rows."""
    shown = {}
    for name, target in targets.items():
        options = target.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if isinstance(target, Boxes):
            rows = [field for field in rows_beside(name, fields) if field != target.of]
            together = [*dict.fromkeys((*target.together, *rows))]
            options |= {"with": together} if together else {}
            options |= {"pad": target.pad or fields[name].shape[0] or "N"}
        kind = type(target).__name__.lower()
        shown[name] = {kind: options} if options else kind
    width = float("inf")
    text = yaml.safe_dump(shown, default_flow_style=True, sort_keys=False, width=width)
    return str(text).strip()


def refuse_mixed_classes(shown: Mapping[str, TargetSpec], steps: Sequence[Step]) -> None:
    """Raises `ConfigError` for a step that would move a mask of the source like a photo, and so
    make classes between others."""
    masks = {name for name, target in shown.items() if target.kind == "mask"}
    for ordinal, step in steps:
        movement = step.movement
        if isinstance(movement, Geometry) and movement.field in masks:
            if getattr(movement, "method", "") != "nearest":
                with within("transforms", ordinal):
                    raise step.error(
                        f"{movement.field!r} is a mask, whose numbers are classes; leave this out "
                        f"and write targets: {{{movement.field}: mask}}, which moves it with the "
                        "picture, by nearest pixels"
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


def target_specs(
    targets: Mapping[str, Target],
    shown: Mapping[str, TargetSpec],
    origins: Mapping[str, str],
    fields: Spec,
) -> tuple[TargetSpec, ...]:
    """Returns what a trainer may know about the targets that it receives with their pictures: those
    of the definition, and others that the source shows; `origins` maps a field to its field of the
    source."""
    known = {name: replace(shown[of], field=name) for name, of in origins.items() if of in shown}
    known |= {name: target_spec(name, target) for name, target in targets.items()}
    shapes = {field.name: field.shape for field in fields}
    return tuple(
        spec
        for spec in known.values()
        if {spec.field, spec.picture} <= shapes.keys()
        if spec.kind != "mask" or shapes[spec.field][:2] == shapes[spec.picture][:2]
    )
