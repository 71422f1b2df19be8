"""Rules about values: transforms that do not fit the data, and those that do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from infeed_server.check.report import SOURCE_STAGE, ClassCounts, FieldRange, value_findings
from infeed_server.transforms import TransformList

LIST: TypeAdapter[Any] = TypeAdapter(TransformList)


def measured(data_type: str, values: Any, stage: int = SOURCE_STAGE) -> FieldRange:
    numbers = np.asarray(values, np.float64)
    finite = numbers[np.isfinite(numbers)]
    result = FieldRange(stage, "x", data_type, "[]")
    missing = len(numbers) - len(finite)
    sums = [len(finite), finite.sum(), (finite**2).sum()]
    result.add(np.array([[finite.min(), finite.max(), *sums, missing]]))
    return result


PIXELS = measured("uint8", np.arange(256))
UNIT = measured("float32", np.linspace(0, 1, 256))


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


def test_new_nan_is_found_where_it_arises() -> None:
    transforms = LIST.validate_python(["cache", {"map": "m:f"}, "cache"])
    ranges = [
        measured("float32", [1.0, 2.0]),
        measured("float32", [1.0, np.nan, np.inf], 1),
        measured("float32", [1.0, np.nan], 2),
    ]
    ((path, text),) = value_findings(transforms, ranges)
    assert (path, text) == (
        ("transforms", 1, "map"),
        "2 results in field 'x' are NaN or infinite",
    )


def test_statistics_are_those_of_all_values() -> None:
    values = np.random.default_rng(0).normal(3, 2, (50, 7))
    result = FieldRange(SOURCE_STAGE, "x", "float64", "[7]")
    for row in values:
        sums = [7, row.sum(), (row**2).sum()]
        result.add(np.array([[row.min(), row.max(), *sums, 0]]))
    assert result.minimum == values.min()
    assert result.maximum == values.max()
    np.testing.assert_allclose([result.mean, result.std], [values.mean(), values.std()])


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
    counts = ClassCounts(("cat", "dog"))
    counts.add(np.asarray(values))
    assert counts.is_balance is is_balance
    assert counts.label(1) == "1 (dog)"
    assert counts.label(2) == "2"
    assert counts.label("\x1b[2J") == r"'\x1b[2J'"
