"""Transforms: operations on one sample, defined in YAML or Python.

Other packages add transforms by the entry points `infeed.transforms`: an entry point's name is the
transform's in YAML, and it loads the `Transform`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, SerializeAsAny, create_model

from infeed.shared.doors import Door
from infeed.shared.errors import ConfigError
from infeed_server.config.model import as_tuple, did_you_mean
from infeed_server.transforms.base import Transform
from infeed_server.transforms.decode import DecodeImage, DecodeRaw
from infeed_server.transforms.fields import Cache, Drop, Rename
from infeed_server.transforms.geometry import (
    CenterCrop,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomResizedCrop,
)
from infeed_server.transforms.numeric import (
    Cast,
    ConvertImageDtype,
    Normalize,
    OneHot,
    StringToNumber,
)
from infeed_server.transforms.sizes import Pad, Resize

_TRANSFORMS: tuple[type[Transform], ...] = (
    *(DecodeImage, DecodeRaw, Resize, Pad, CenterCrop, RandomCrop, RandomResizedCrop),
    *(RandomFlipLeftRight, RandomFlipUpDown),
    *(Normalize, Cast, OneHot, StringToNumber, ConvertImageDtype),
    *(Rename, Drop, Cache),
)

REGISTRY: Mapping[str, type[Transform]] = {transform.name: transform for transform in _TRANSFORMS}
"""Name in YAML → class of infeed's own transform."""

_DOOR = Door("infeed.transforms", "transform")


def transform_names() -> list[str]:
    """Returns the names of all transforms: infeed's own in the order of the tables, and others."""
    return list(dict.fromkeys((*REGISTRY, *_DOOR.names())))


def transform_class(name: str) -> type[Transform]:
    """Returns the transform of a name. Raises `ConfigError` where its package is at fault."""
    if name not in _DOOR.names():
        return REGISTRY[name]
    found: type[Transform] = _DOOR.load(name)
    is_transform = isinstance(found, type) and issubclass(found, Transform)
    if is_transform and found.name == name and name not in REGISTRY:
        return found
    problem = f"should be a Transform named {name!r}, and infeed should have none of that name"
    raise ConfigError(f"the transform {name!r}, {_DOOR.place(name)}, {problem}")


@cache
def _model(transform: type[Transform]) -> Any:
    """Returns a model, so that pydantic adds the transform's name to the location of an error."""
    options: Any = {transform.name: (transform | None, None)}
    return create_model("_ByName", **options)


def _parse(value: Any) -> Transform:
    """Builds a transform from its form in YAML: `{name: options}` or `name`. Returns a built one
    unchanged."""
    if isinstance(value, Transform):
        return value
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("should be one transform, as `name: {option: value}` or just its name")
    name, options = next(iter(value.items()))
    known = sorted(transform_names())
    if name not in known:
        hint = did_you_mean(str(name), known)
        raise ValueError(f"unknown transform {name!r}{hint}; known: {', '.join(known)}")
    try:
        chosen = transform_class(name)
    except ConfigError as error:
        raise ValueError(error.message) from error
    if options is None:
        options = {}
    elif chosen.shorthand is not None and not isinstance(options, dict):
        options = {chosen.shorthand: options}
    transform: Transform = getattr(_model(chosen).model_validate({name: options}), name)
    return transform


AnyTransform = Annotated[SerializeAsAny[Transform], PlainValidator(_parse)]
"""One transform, from YAML or from Python."""

TransformList = Annotated[
    tuple[AnyTransform, ...],
    BeforeValidator(as_tuple),
    Field(examples=["[decode_image: {field: image}]"]),
]
"""The transforms of a pipeline, in order; YAML's list becomes a tuple."""

__all__ = [
    "REGISTRY", "AnyTransform", "Cache", "Cast", "CenterCrop", "ConvertImageDtype", "DecodeImage",
    "DecodeRaw", "Drop", "Normalize", "OneHot", "Pad",
    "RandomCrop", "RandomFlipLeftRight", "RandomFlipUpDown", "RandomResizedCrop",
    "Rename", "Resize", "StringToNumber", "Transform", "TransformList",
    "transform_class", "transform_names",
]  # fmt: skip
