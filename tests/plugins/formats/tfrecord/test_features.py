"""The features of an Example, and their parsing into fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed_formats.tfrecord.source import TFRecordSource

Write = Callable[..., Path]
Example = Callable[..., bytes]
Parse = Callable[..., dict[str, Any]]


@pytest.fixture
def open_examples(write_records: Write) -> Callable[..., Any]:
    """`open_examples(features, *records)` opens a source of these records."""

    def run(features: dict[str, Any], *records: bytes) -> Any:
        path = str(write_records("a.tfrecord", records))
        return TFRecordSource.model_validate({"tfrecord": path, "features": features}).open()

    return run


def test_scalar_and_fixed_features(open_examples: Any, example: Example, parse: Parse) -> None:
    weights = {"type": "float32", "shape": [3, 1]}
    features = {"image": "bytes", "label": "int64", "weights": weights}
    source = open_examples(features, example(image=b"jpeg", label=7, weights=[1.0, 2.0, 3.0]))
    fields = parse(source, 0)
    assert (fields["image"], fields["label"]) == (b"jpeg", 7)
    assert fields["label"].dtype == np.int64
    np.testing.assert_array_equal(fields["weights"], np.float32([[1], [2], [3]]))


def test_variable_features_are_padded_and_counted(
    open_examples: Any, example: Example, parse: Parse
) -> None:
    records = [example(ids=[*range(1, count + 1)], words=[b"a"]) for count in (2, 4, 5)]
    ids = {"type": "int64", "max_length": 4, "pad_value": -1}
    source = open_examples({"ids": ids, "words": {"type": "bytes", "max_length": 2}}, *records)
    short, full = parse(source, 0), parse(source, 1)
    assert short["ids"].tolist() == [1, 2, -1, -1]
    assert (short["ids_length"], full["ids_length"]) == (2, 4)
    assert short["ids_length"].dtype == np.int64
    assert full["ids"].tolist() == [1, 2, 3, 4]
    assert (short["words"].tolist(), short["words_length"]) == ([b"a", b""], 1)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"ids has more values than its max_length 4:\] \[5\]"
    ):
        parse(source, 2)


def test_missing_feature_fails_in_the_graph(
    open_examples: Any, example: Example, parse: Parse
) -> None:
    source = open_examples({"x": "bytes"}, example(y=1), example(x=1))
    for index in (0, 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="x"):
            parse(source, index)


def test_identity_follows_the_features(open_examples: Any) -> None:
    features = ("bytes", "int64", {"type": "int64", "max_length": 3})
    assert len({open_examples({"x": feature}, b"one").identity for feature in features}) == 3


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"x": "string"}, "Input should be 'bytes', 'int64', 'float' or 'float32'"),
        ({}, "at least 1 item"),
        ({"x": {"type": "int64", "shape": [2], "max_length": 3}}, "not both"),
        ({"x": {"type": "int64", "pad_value": 3}}, "pad_value requires max_length"),
        ({"x": {"type": "int64", "max_length": 3, "pad_value": 0.5}}, "0.5 is not of type int64"),
        ({"x": {"type": "bytes", "max_length": 3, "pad_value": 0}}, "0 is not of type bytes"),
        ({"x": {"type": "int64", "shape": [0]}}, "greater than 0"),
        (
            {"x": {"type": "int64", "max_length": 3}, "x_length": "int64"},
            "also the name of a feature",
        ),
        ({"x": {"type": "int64", "size": 3}}, "unknown key 'size'"),
    ],
)
def test_invalid_features_are_refused(features: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TFRecordSource.model_validate({"tfrecord": "a", "features": features})
