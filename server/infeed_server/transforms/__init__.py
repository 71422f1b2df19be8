"""Transforms: steps on one sample, built from YAML or Python."""

from infeed_server.transforms.base import FieldTransform, Key, Sample, Transform, take
from infeed_server.transforms.cache import Cache
from infeed_server.transforms.colour import (
    RandomBrightness,
    RandomContrast,
    RandomHue,
    RandomSaturation,
)
from infeed_server.transforms.crop import CenterCrop, Crop, RandomCrop, RandomResizedCrop
from infeed_server.transforms.decode import DecodeImage, DecodeRaw
from infeed_server.transforms.fields import Drop, Rename
from infeed_server.transforms.flip import RandomFlipLeftRight, RandomFlipUpDown
from infeed_server.transforms.lint import stateful_random_ops
from infeed_server.transforms.registry import REGISTRY, AnyTransform, TransformList
from infeed_server.transforms.resize import Resize
from infeed_server.transforms.user import Map
from infeed_server.transforms.values import (
    Cast,
    ConvertImageDtype,
    Normalize,
    OneHot,
    StringToNumber,
)

__all__ = [
    "REGISTRY",
    "AnyTransform",
    "Cache",
    "Cast",
    "CenterCrop",
    "ConvertImageDtype",
    "Crop",
    "DecodeImage",
    "DecodeRaw",
    "Drop",
    "FieldTransform",
    "Key",
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
    "Sample",
    "StringToNumber",
    "Transform",
    "TransformList",
    "stateful_random_ops",
    "take",
]
