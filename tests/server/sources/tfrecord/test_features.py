"""The features of an Example, and their parsing into fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed_server.sources import TFRecordSource

Write = Callable[..., Path]
Example = Callable[..., bytes]
Parse = Callable[..., dict[str, Any]]


def test_scalar_and_fixed_features(write_records: Write, example: Example, parse: Parse) -> None:
    path = write_records("a.tfrecord", [example(image=b"jpeg", label=7, weights=[1.0, 2.0, 3.0])])
    source = TFRecordSource.model_validate(
        {
            "tfrecord": str(path),
            "features": {
                "image": "bytes",
                "label": "int64",
                "weights": {"type": "float32", "shape": [3, 1]},
            },
        }
    ).open()
    fields = parse(source, 0)
    assert fields["image"] == b"jpeg"
    assert fields["label"] == 7
    assert fields["label"].dtype == np.int64
    np.testing.assert_array_equal(fields["weights"], np.float32([[1], [2], [3]]))


def test_variable_features_are_padded_and_counted(
    write_records: Write, example: Example, parse: Parse
) -> None:
    path = write_records(
        "a.tfrecord",
        [
            example(ids=[1, 2], words=[b"a"]),
            example(ids=[1, 2, 3, 4]),
            example(ids=[1, 2, 3, 4, 5]),
        ],
    )
    source = TFRecordSource.model_validate(
        {
            "tfrecord": str(path),
            "features": {
                "ids": {"type": "int64", "max_length": 4, "pad_value": -1},
                "words": {"type": "bytes", "max_length": 2},
            },
        }
    ).open()
    short, full = parse(source, 0), parse(source, 1)
    assert short["ids"].tolist() == [1, 2, -1, -1]
    assert (short["ids_length"], full["ids_length"]) == (2, 4)
    assert short["ids_length"].dtype == np.int64
    assert full["ids"].tolist() == [1, 2, 3, 4]
    assert (short["words"].tolist(), full["words"].tolist()) == ([b"a", b""], [b"", b""])
    assert (short["words_length"], full["words_length"]) == (1, 0)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"ids has more values than its max_length 4:\] \[5\]"
    ):
        parse(source, 2)


def test_missing_feature_fails_in_the_graph(
    write_records: Write, example: Example, parse: Parse
) -> None:
    path = write_records("a.tfrecord", [example(y=1), example(x=1)])
    source = TFRecordSource.model_validate(
        {"tfrecord": str(path), "features": {"x": "bytes"}}
    ).open()
    for index in (0, 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="x"):
            parse(source, index)


def test_identity_follows_the_features(write_records: Write) -> None:
    path = str(write_records("a.tfrecord", [b"one"]))
    identities = {
        TFRecordSource.model_validate({"tfrecord": path, "features": {"x": feature}})
        .open()
        .identity
        for feature in ("bytes", "int64", {"type": "int64", "max_length": 3})
    }
    assert len(identities) == 3


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
