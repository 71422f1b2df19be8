"""The choice of steps that run at the trainer, to minimise bytes on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.shared import finish, spec
from infeed_python.map import Map
from infeed_server.transforms import (
    Cache,
    Cast,
    Drop,
    Normalize,
    OneHot,
    RandomFlipLeftRight,
    Rename,
    Transform,
)
from infeed_server.transforms.finish_placement import plan_finish

IMAGE = tf.TensorSpec([8, 8, 3], tf.uint8)
FIELDS = {
    "image": IMAGE,
    "floats": tf.TensorSpec([4], tf.float32),
    "label": tf.TensorSpec([], tf.int64),
    "name": tf.TensorSpec([], tf.string),
}


def trace(transforms: list[Transform], before: dict[str, tf.TensorSpec]) -> list[Any]:
    stages: list[Any] = [before]

    def run(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
        for transform in transforms:
            sample = transform.apply(sample, key)
            stages.append({k: tf.TensorSpec(v.shape, v.dtype) for k, v in sample.items()})
        return sample

    tf.function(run, autograph=False).get_concrete_function(before, tf.TensorSpec([2], tf.int64))
    return stages


def plan(*transforms: Transform, before: Any = None) -> tuple[list[int], tuple[Any, ...]]:
    """Returns the ordinals of the steps that stay on the server, and the finish transforms."""
    stages = trace(list(transforms), before or FIELDS)
    host, moved = plan_finish(list(enumerate(transforms)), stages)
    assert all(transforms[ordinal] is step for ordinal, step in host)
    return [ordinal for ordinal, _ in host], moved


SCALE = Normalize(field="image", scale=255.0)
FLIP = RandomFlipLeftRight(field="image")


def test_conversion_from_bytes_to_floats_moves() -> None:
    assert plan(FLIP, SCALE) == ([0], (spec.Normalize("image", scale=255.0),))


def test_step_that_saves_bytes_stays() -> None:
    assert plan(Cast(field="label", dtype="int32")) == ([0], ())


def test_one_hot_moves_unless_it_is_smaller() -> None:
    assert plan(OneHot(field="label", depth=10)) == ([], (spec.OneHot("label", 10),))
    assert plan(OneHot(field="label", depth=8, dtype="bool")) == ([0], ())


def test_step_before_a_host_step_stays() -> None:
    assert plan(SCALE, FLIP) == ([0, 1], ())
    assert plan(SCALE, Map(function=lambda sample: sample)) == ([0, 1], ())


def test_chain_is_split_where_bytes_are_fewest() -> None:
    small = Cast(field="label", dtype="uint8")
    assert plan(small, OneHot(field="label", depth=9)) == ([0], (spec.OneHot("label", 9),))
    # uint8 → float32 → uint8 (as small as the first, so the split is here) → float32.
    widen, narrow = Cast(field="image", dtype="float32"), Cast(field="image", dtype="uint8")
    assert plan(widen, narrow, SCALE) == ([0, 1], (spec.Normalize("image", scale=255.0),))


def test_moved_steps_of_several_fields_keep_their_order() -> None:
    hot = OneHot(field="label", depth=10)
    more = Cast(field="image", dtype="float64")
    host, moved = plan(hot, SCALE, FLIP, more, OneHot(field="x", depth=3), before=_with_x())
    assert host == [1, 2]
    assert moved == (
        spec.OneHot("label", 10),
        spec.Cast("image", "float64"),
        spec.OneHot("x", 3),
    )


def _with_x() -> dict[str, tf.TensorSpec]:
    return {**FIELDS, "x": tf.TensorSpec([], tf.uint8)}


def test_moved_step_has_the_later_name_of_its_field() -> None:
    swap = Rename(fields={"image": "floats", "floats": "image"})
    assert plan(SCALE, swap, Rename(fields={"floats": "x"})) == (
        [1, 2],
        (spec.Normalize("x", scale=255.0),),
    )


def test_steps_of_a_dropped_field_stay() -> None:
    assert plan(SCALE, Drop(fields=("image",))) == ([0, 1], ())
    takes_its_name = Rename(fields={"floats": "image"})
    assert plan(SCALE, Drop(fields=("image",)), takes_its_name) == ([0, 1, 2], ())


def test_step_of_a_varying_shape_moves() -> None:
    before = {"image": tf.TensorSpec([None, None, 3], tf.uint8)}
    assert plan(SCALE, before=before) == ([], (spec.Normalize("image", scale=255.0),))


STEPS: list[Transform] = [
    SCALE,
    FLIP,
    Cast(field="image", dtype="float32"),
    Cast(field="image", dtype="uint8"),
    Cast(field="label", dtype="uint8"),
    Cast(field="label", dtype="int64"),
    Normalize(field="floats", mean=(0.5,), std=(0.25,), dtype="float64"),
    Rename(fields={"image": "floats", "floats": "image"}),
    Cache(),
]


@examples(25)
@given(st.lists(st.sampled_from(STEPS), max_size=5))
def test_host_and_finish_together_equal_all_steps(steps: list[Transform]) -> None:
    before = {
        "image": tf.TensorSpec([4, 4, 3], tf.uint8),
        "floats": tf.TensorSpec([4, 4, 3], tf.float32),
        "label": tf.TensorSpec([], tf.int64),
    }
    rng = np.random.default_rng(5)
    sample = {
        "image": tf.constant(rng.integers(0, 256, (4, 4, 3), np.uint8)),
        "floats": tf.constant(rng.random((4, 4, 3), np.float32) * 9),
        "label": tf.constant(7, tf.int64),
    }
    key = tf.constant([1, 2], tf.int64)
    stages = trace(steps, before)
    host, moved = plan_finish(list(enumerate(steps)), stages)

    expected = dict(sample)
    for step in steps:
        expected = step.apply(expected, key)
    sent = dict(sample)
    for _, step in host:
        sent = step.apply(sent, key)
    sizes = [sum(x.numpy().nbytes for x in fields.values()) for fields in (sent, expected)]
    assert sizes[0] <= sizes[1]
    batch = {name: value.numpy()[np.newaxis] for name, value in sent.items()}
    finished = finish.finish(batch, moved, np.ones(1, np.bool_))
    assert finished.keys() == expected.keys()
    for name, value in expected.items():
        assert finished[name].dtype == value.numpy().dtype
        np.testing.assert_array_equal(finished[name][0], value)
