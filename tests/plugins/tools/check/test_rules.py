"""Rules about values: transforms that do not fit the data, and those that do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from infeed_server.transforms import TransformList
from infeed_tools.check.ranges import SOURCE_STAGE, ClassCounts, FieldRange
from infeed_tools.check.rules import value_findings

LIST: TypeAdapter[Any] = TypeAdapter(TransformList)

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
CAFFE = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}


def measured(data_type: str, values: Any, stage: int = SOURCE_STAGE) -> FieldRange:
    numbers = np.asarray(values, np.float64)
    finite = numbers[np.isfinite(numbers)]
    result = FieldRange(stage, "x", data_type, "[]")
    missing = len(numbers) - len(finite)
    sums = [len(finite), finite.sum(), (finite**2).sum()]
    result.add(np.array([[finite.min(), finite.max(), *sums, missing, 0, 0]]))
    return result


PIXELS = measured("uint8", np.arange(256))
UNIT = measured("float32", np.linspace(0, 1, 256))


@pytest.mark.parametrize(
    ("options", "before", "message"),
    [
        (
            IMAGENET,
            PIXELS,
            "std 0.229 does not fit values of 0 to 255 (standard deviation 73.9); for mean and std",
        ),
        (
            {**CAFFE, "scale": 255.0},
            PIXELS,
            "std 58.395 does not fit values of 0 to 255, divided by 255 (standard deviation 0.29)",
        ),
        ({"mean": 0.45}, PIXELS, "mean 0.45 does not fit values of 0 to 255 (mean 128); for mean "),
        ({"mean": 120, "scale": 255.0}, PIXELS, "mean 120 does not fit values of 0 to 255, divid"),
        ({"scale": 255.0}, UNIT, "scale: 255 does not fit 0 to 1: the result is at most 0.0039; "),
        ({"scale": 1 / 255}, PIXELS, "scale is a divisor: 0.00392157 makes values up to 65025; "),
        ({"mean": 120, "std": 60}, UNIT, "std 60 does not fit values of 0 to 1"),
    ],
)
def test_normalize_that_does_not_fit_is_found(options: Any, before: Any, message: str) -> None:
    transforms = LIST.validate_python([{"normalize": {"field": "x", **options}}])
    found = list(value_findings(transforms, [before]))
    assert [path for path, _ in found] == [("transforms", 0, "normalize")]
    assert found[0][1].startswith(message), found[0][1]
    assert re.search("add scale: 255|omit scale|use ", found[0][1])


@pytest.mark.parametrize(
    ("options", "before"),
    [
        ({"scale": 255.0}, PIXELS),
        ({"scale": 255.0, **IMAGENET}, PIXELS),
        (CAFFE, PIXELS),
        ({"mean": [103.9, 116.8, 123.7]}, PIXELS),
        ({"scale": 127.5, "mean": 1.0}, PIXELS),
        (IMAGENET, UNIT),
        ({"mean": 0.1, "std": 300}, measured("float32", np.linspace(-1000, 1000, 99))),
        ({"mean": 5, "std": 1}, measured("float32", [5.0, 5.0])),
        ({"scale": 16}, measured("uint8", np.arange(17))),
    ],
)
def test_usual_normalizations_are_good(options: Any, before: Any) -> None:
    transforms = LIST.validate_python([{"normalize": {"field": "x", **options}}])
    assert list(value_findings(transforms, [before])) == []


def test_labels_beyond_the_depth_are_found() -> None:
    transforms = LIST.validate_python([{"one_hot": {"field": "x", "depth": 10}}])
    assert list(value_findings(transforms, [measured("int64", [0, 9])])) == []
    for labels, message in (([0, 10], "labels 0 to 10"), ([-1, 3], "labels -1 to 3")):
        ((path, text),) = value_findings(transforms, [measured("int64", labels)])
        assert path == ("transforms", 0, "one_hot")
        assert message in text


def test_colours_of_floats_beyond_one_are_found() -> None:
    transforms = LIST.validate_python([{"random_hue": {"field": "x", "max_delta": 0.1}}])
    assert list(value_findings(transforms, [PIXELS])) == []
    assert list(value_findings(transforms, [UNIT])) == []
    ((_, text),) = value_findings(transforms, [measured("float32", [0.0, 255.0])])
    assert text.endswith("put normalize with scale: 255 before it")


@pytest.mark.parametrize(
    ("values", "is_balance"),
    [
        ([1, 1, 2, 2], True),
        ([1, 2, 3, 4], False),
        (np.array([b"cat", b"cat", b"dog", b"dog"], object), True),
        (np.array([b"x" * 65, b"x" * 65], object), False),
    ],
)
def test_classes_are_values_that_repeat(values: Any, is_balance: bool) -> None:
    counts = ClassCounts("label", names=("cat", "dog"))
    counts.add(np.asarray(values))
    assert counts.is_balance is is_balance
    assert counts.label(1) == "1 (dog)"
    assert counts.label(2) == "2"
    assert counts.label("\x1b[2J") == r"'\x1b[2J'"
