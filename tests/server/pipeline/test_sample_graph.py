"""Tests of `pipeline/sample_graph.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError, UserCodeError
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source
from infeed_server.transforms.base import Step


def open_steps(*transforms: Any) -> tuple[Any, list[Step]]:
    arrays = {"x": np.arange(6, dtype=np.int32), "image": np.zeros((6, 4, 4, 3), np.uint8)}
    pipeline = parse({"source": {"arrays": arrays}, "transforms": list(transforms)})
    assert pipeline.source is not None
    return open_source(pipeline.source), list(enumerate(pipeline.transforms))


def test_trace_has_the_fields_before_each_step_and_last() -> None:
    source, steps = open_steps(
        {"resize": {"field": "image", "size": [2, 5], "dtype": "float32"}},
        {"drop": {"fields": ["x"]}},
    )
    stages = sample_graph.trace(source, steps).stages
    assert [sorted(stage) for stage in stages] == [["image", "x"], ["image", "x"], ["image"]]
    assert [tuple(stage["image"].shape) for stage in stages] == [(4, 4, 3), (2, 5, 3), (2, 5, 3)]
    assert str(sample_graph.field_specs(stages[-1])[0]) == "image: float32[2, 5, 3]"


def unknown(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"x": sample["nothing"]}


@pytest.mark.parametrize(
    ("transforms", "error", "message"),
    [
        (
            [{"cast": {"field": "x", "dtype": "int8"}}, {"resize": {"field": "y", "size": [2, 2]}}],
            ConfigError,
            r"^transforms\[1\].resize: no field 'y'; available: image, x$",
        ),
        (
            [{"decode_raw": {"field": "x", "shape": [2]}}],
            ConfigError,
            r"^transforms\[0\].decode_raw: field 'x' holds int32\[\], not ",
        ),
        ([{"map": {"function": unknown}}], UserCodeError, r"^transforms\[0\].map: (.|\n)*KeyError"),
        (
            [{"drop": {"fields": ["x", "image"]}}],
            ConfigError,
            r"^transforms\[0\].drop: no field is l",
        ),
    ],
)
def test_invalid_step_is_named(transforms: Any, error: Any, message: str) -> None:
    source, steps = open_steps(*transforms)
    with pytest.raises(error, match=message):
        sample_graph.trace(source, steps)


def test_field_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^here: field 'x' ends as complex64, which cannot be se"
    ):
        sample_graph.field_specs({"x": tf.TensorSpec([], tf.complex64)}, "here")
    with pytest.raises(ConfigError, match=r"^transforms: field 'x' ends with the shape \[3, \?\]"):
        sample_graph.field_specs({"x": tf.TensorSpec([3, None], tf.uint8)})
    loose = {"x": tf.TensorSpec([None, 2], tf.uint8)}
    with pytest.raises(ConfigError, match=r"{boxes: {boxes: {with: \[x\], pad: N}}}"):
        sample_graph.field_specs(loose)
    padded = {"box": [5, 4], "box_count": [], "label": [5], "image": [9, 9, 3]}
    specs = loose | {name: tf.TensorSpec(shape, tf.int64) for name, shape in padded.items()}
    problem = r"give the targets with: \[x, label\] of 'box', where these are padded"
    with pytest.raises(ConfigError, match=problem):
        sample_graph.field_specs(specs)
