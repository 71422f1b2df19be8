"""Transforms: operations on one sample, defined in YAML or Python."""

from infeed_server.transforms.base import Transform
from infeed_server.transforms.colour import (
    RandomBrightness,
    RandomContrast,
    RandomHue,
    RandomSaturation,
)
from infeed_server.transforms.decode import DecodeImage, DecodeRaw
from infeed_server.transforms.fields import Cache, Drop, Rename
from infeed_server.transforms.geometry import (
    CenterCrop,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    Resize,
)
from infeed_server.transforms.numeric import (
    Cast,
    ConvertImageDtype,
    Normalize,
    OneHot,
    StringToNumber,
)
from infeed_server.transforms.random_resized_crop import RandomResizedCrop
from infeed_server.transforms.registry import REGISTRY, TransformList
from infeed_server.transforms.user_map import Map

__all__ = [
    "REGISTRY",
    "Cache",
    "Cast",
    "CenterCrop",
    "ConvertImageDtype",
    "DecodeImage",
    "DecodeRaw",
    "Drop",
    "Map",
    "Normalize",
    "OneHot",
    "RandomBrightness",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipUpDown",
    "RandomHue",
    "RandomResizedCrop",
    "RandomSaturation",
    "Rename",
    "Resize",
    "StringToNumber",
    "Transform",
    "TransformList",
]
