"""Targets of a picture in a definition: masks, boxes and key points by field."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator

from infeed_server.config.model import Definition
from infeed_server.transforms.base import FieldName
from infeed_server.transforms.instances import Boxes, Keypoints
from infeed_server.transforms.target import Mask, Target


class _ByName(Definition):
    """A target by its name in YAML."""

    mask: Mask | None = None
    boxes: Boxes | None = None
    keypoints: Keypoints | None = None


def parse_target(value: Any) -> Target:
    """Builds a target from its form in YAML: `name`, `{name: options}` or `{boxes: xyxy}`."""
    if isinstance(value, Target):
        return value
    value = {value: {}} if isinstance(value, str) else value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("should be mask, boxes or keypoints, alone or as `name: {option: value}`")
    name, options = next(iter(value.items()))
    if name == "boxes" and isinstance(options, str):
        options = {"format": options}
    parsed = _ByName.model_validate({name: {} if options is None else options})
    target: Target = getattr(parsed, name)
    return target


AnyTarget = Annotated[Target, PlainValidator(parse_target)]

Targets = dict[FieldName, AnyTarget]
"""Field → what it shows of its picture."""
