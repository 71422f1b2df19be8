"""The registry of transforms by name, and the validation of a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Discriminator,
    PlainValidator,
    SerializeAsAny,
    Tag,
    TypeAdapter,
)

from infeed_server.config.model import as_tuple, did_you_mean
from infeed_server.transforms import (
    colour,
    decode,
    fields,
    geometry,
    numeric,
    random_resized_crop,
    user_map,
)
from infeed_server.transforms.base import Transform

_TRANSFORMS: tuple[type[Transform], ...] = (
    *(decode.DecodeImage, decode.DecodeRaw),
    *(
        geometry.Resize,
        geometry.CenterCrop,
        geometry.RandomCrop,
        random_resized_crop.RandomResizedCrop,
    ),
    *(geometry.RandomFlipLeftRight, geometry.RandomFlipUpDown),
    *(colour.RandomBrightness, colour.RandomContrast, colour.RandomSaturation, colour.RandomHue),
    *(numeric.Normalize, numeric.Cast, numeric.OneHot, numeric.StringToNumber),
    *(numeric.ConvertImageDtype, fields.Rename, fields.Drop, user_map.Map, fields.Cache),
)

REGISTRY: Mapping[str, type[Transform]] = {transform.name: transform for transform in _TRANSFORMS}
"""Name in YAML → class of the transform."""


def _parse(value: Any) -> Transform:
    """Builds a transform from its form in YAML: `{name: options}` or `name`. Keeps a built one."""
    if isinstance(value, Transform):
        return value
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("should be one transform, as `name: {option: value}` or just its name")
    name, options = next(iter(value.items()))
    if name not in REGISTRY:
        known = sorted(REGISTRY)
        hint = did_you_mean(str(name), known)
        raise ValueError(f"unknown transform {name!r}{hint}; known: {', '.join(known)}")
    shorthand = REGISTRY[name].shorthand
    if options is None:
        options = {}
    elif shorthand is not None and not isinstance(options, dict):
        options = {shorthand: options}
    # A tagged union, so that pydantic adds the transform's name to the location of an error.
    return _BY_NAME.validate_python({name: options})


def _name(value: Mapping[str, Any]) -> str:
    return next(iter(value))


def _options(value: Mapping[str, Any]) -> Any:
    return next(iter(value.values()))


_BY_NAME: TypeAdapter[Transform] = TypeAdapter(
    Annotated[
        reduce(
            or_,  # type: ignore[arg-type]
            (
                Annotated[transform, BeforeValidator(_options), Tag(name)]
                for name, transform in REGISTRY.items()
            ),
        ),
        Discriminator(_name),
    ]
)

AnyTransform = Annotated[SerializeAsAny[Transform], PlainValidator(_parse)]
"""One transform, from YAML or from Python."""


TransformList = Annotated[tuple[AnyTransform, ...], BeforeValidator(as_tuple)]
"""The transforms of a pipeline, in order; YAML's list becomes a tuple."""
