"""The graph of one sample: what is traced, told and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.errors import ConfigError, UserCodeError
from infeed_server.pipeline import graph
from infeed_server.pipeline.load import parse
from infeed_server.sources import open_source


def opened(*transforms: Any) -> tuple[Any, list[graph.Step]]:
    arrays = {"x": np.arange(6, dtype=np.int32), "image": np.zeros((6, 4, 4, 3), np.uint8)}
    pipeline = parse({"source": {"arrays": arrays}, "transforms": list(transforms)})
    assert pipeline.source is not None
    return open_source(pipeline.source), list(enumerate(pipeline.transforms))


def test_stages_are_the_fields_before_each_step_and_at_the_end() -> None:
    source, steps = opened(
        {"resize": {"field": "image", "size": [2, 5], "dtype": "float32"}},
        {"drop": {"fields": ["x"]}},
    )
    stages = graph.trace(source, steps)
    assert [sorted(stage) for stage in stages] == [["image", "x"], ["image", "x"], ["image"]]
    assert [tuple(stage["image"].shape) for stage in stages] == [(4, 4, 3), (2, 5, 3), (2, 5, 3)]
    assert str(graph.field_specs(stages[-1])[0]) == "image: float32[2, 5, 3]"


def test_each_random_step_draws_for_itself() -> None:
    def draw(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
        name = f"draw{len(sample)}"
        return {**sample, name: tf.random.stateless_uniform([], key)}

    source, steps = opened({"map": {"function": draw}}, {"map": {"function": draw}})
    function = graph.function(source, steps)
    sample = {name: tf.constant(rows[0]) for name, rows in source.read(np.array([0])).items()}
    first = function(sample, tf.constant([1, 2], tf.int64))
    again = function(sample, tf.constant([1, 2], tf.int64))
    other = function(sample, tf.constant([1, 3], tf.int64))
    assert float(first["draw2"]) != float(first["draw3"])
    assert float(first["draw2"]) == float(again["draw2"])
    assert float(first["draw2"]) != float(other["draw2"])


def test_a_steps_place_in_the_list_is_part_of_its_key() -> None:
    _, steps = opened({"random_flip_left_right": {"field": "image"}})
    here, elsewhere = steps[0], (5, steps[0][1])
    image = tf.cast(tf.reshape(tf.range(48), [4, 4, 3]), tf.uint8)
    sample = {"x": tf.constant(0), "image": image}

    def flipped(step: graph.Step) -> list[bool]:
        keys = [tf.constant([3, number], tf.int64) for number in range(20)]
        images = [graph.run(step, sample, key)["image"] for key in keys]
        return [not bool(tf.reduce_all(each == image)) for each in images]

    assert flipped(here) == flipped(here)
    assert flipped(here) != flipped(elsewhere)


def unknown(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"x": sample["nothing"]}


@pytest.mark.parametrize(
    ("transforms", "error", "words"),
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
def test_a_step_that_does_not_fit_is_named(transforms: Any, error: Any, words: str) -> None:
    source, steps = opened(*transforms)
    with pytest.raises(error, match=words) as caught:
        graph.trace(source, steps)
    assert caught.value.metadata["stage"] == str(caught.value).partition(": ")[0]


def test_what_cannot_travel_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^here: field 'x' ends as complex64, which cannot be se"
    ):
        graph.field_specs({"x": tf.TensorSpec([], tf.complex64)}, "here")
    with pytest.raises(
        ConfigError, match=r"^transforms: field 'x' ends with the shape \(3, None\)"
    ):
        graph.field_specs({"x": tf.TensorSpec([3, None], tf.uint8)})
