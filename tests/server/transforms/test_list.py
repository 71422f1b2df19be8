"""The validation of a list of transforms, and its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from infeed.shared.errors import format_path
from infeed_server.config.model import Definition, explain
from infeed_server.transforms import (
    REGISTRY,
    Cache,
    CenterCrop,
    DecodeImage,
    DecodeRaw,
    Drop,
    Normalize,
    RandomResizedCrop,
    Rename,
    Resize,
    Transform,
    TransformList,
)

LIST: TypeAdapter[tuple[Transform, ...]] = TypeAdapter(TransformList)


class Holder(Definition):
    transforms: TransformList = ()


def problems(*transforms: Any) -> list[str]:
    value = {"transforms": list(transforms)}
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate(value)
    return [f"{format_path(path)}: {text}" for path, text in explain(caught.value, value)]


def test_yaml_and_python_give_equal_transforms() -> None:
    yaml = [
        {"decode_image": {"field": "image", "channels": 1}},
        {"decode_raw": {"field": "x", "dtype": "int16", "shape": []}},
        {"resize": {"field": "image", "size": [224, 200], "method": "area"}},
        {"center_crop": {"field": "image", "size": [2, 3]}},
        {"random_resized_crop": {"field": "image", "size": [8, 8], "scale": [0.5, 1]}},
        {"normalize": {"field": "image", "scale": 255, "mean": [0.1, 0.2], "std": 2}},
        {"rename": {"fields": {"a": "b"}}},
        {"drop": {"fields": ["c"]}},
        "cache",
        {"cache": None},
        {"cache": "disk"},
        {"cache": {"budget": "7MiB"}},
    ]
    python = (
        DecodeImage(field="image", channels=1),
        DecodeRaw(field="x", dtype="int16", shape=()),
        Resize(field="image", size=(224, 200), method="area"),
        CenterCrop(field="image", size=(2, 3)),
        RandomResizedCrop(field="image", size=(8, 8), scale=(0.5, 1.0)),
        Normalize(field="image", scale=255.0, mean=(0.1, 0.2), std=(2.0,)),
        Rename(fields={"a": "b"}),
        Drop(fields=("c",)),
        Cache(),
        Cache(),
        Cache(store="disk"),
        Cache(budget=7 << 20),
    )
    assert LIST.validate_python(yaml) == python
    assert LIST.validate_python(python) == python
    assert LIST.validate_python(list(python)) == python


def test_identity_is_json_with_every_option() -> None:
    one = Resize(field="x", size=(1, 2))
    assert one.identity() == {
        "resize": {
            "field": "x", "size": [1, 2], "short_side": None, "method": "bilinear",
            "antialias": False, "dtype": None,
        }
    }  # fmt: skip
    assert json.dumps(Normalize(field="x", mean=(0.5,)).identity())


def test_unknown_transform_is_refused() -> None:
    (problem,) = problems("cache", {"resiz": {"field": "x"}})
    assert problem.startswith(
        "transforms[1]: unknown transform 'resiz' (did you mean 'resize'?); known: "
    )
    assert all(name in problem for name in REGISTRY)
    assert "did you mean" not in problems("qqqqq")[0]


def test_every_problem_is_reported_with_its_location() -> None:
    assert problems(
        {"resize": {"field": "x", "size": [224]}},
        {"one_hot": {"field": "x", "depth": "3"}},
        "decode_image",
        {"random_crop": {"field": "x", "size": 224}},
        {"cast": {"field": "x", "dtype": "int7"}},
        {"map": "nowhere"},
        {"random_contrast": {"field": "x", "lower": 2, "upper": 1}},
        {"resize": [1]},
        7,
        {"a": 1, "b": 2},
    ) == [
        "transforms[0].resize.size[1]: missing; it is required",
        "transforms[1].one_hot.depth: should be a valid integer, not '3'",
        "transforms[2].field: missing; it is required",
        "transforms[3].random_crop.size: should be a valid list such as [224, 224], not 224",
        (
            "transforms[4].cast.dtype: should be 'bool', 'int8', 'int16', 'int32', 'int64', "
            "'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float32', 'float64' or 'bfloat16', "
            "not 'int7'"
        ),
        "transforms[5].map: should be of the form module:attr, not 'nowhere'",
        "transforms[6].random_contrast: upper (1.0) should be greater than lower (2.0)",
        "transforms[7].resize: should be a valid mapping such as {field: image}, not [1]",
        (
            "transforms[8]: should be one transform, as `name: {option: value}` or just its name, "
            "not 7"
        ),
        (
            "transforms[9]: should be one transform, as `name: {option: value}` or just its name, "
            "not {'a': 1, 'b': 2}"
        ),
    ]
