"""Draws: a random transform's key is made from a name, behind any other steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_graph import sample_function, step_key
from infeed_server.sources.registry import open_source

FLIP: dict[str, Any] = {"random_flip_left_right": {"field": "image"}}
BRIGHT: dict[str, Any] = {"random_brightness": {"field": "image", "max_delta": 0.2}}
RESIZE: dict[str, Any] = {"resize": {"field": "image", "size": [8, 8]}}
CAST: dict[str, Any] = {"cast": {"field": "image", "dtype": "uint8"}}
ARRAYS = {"image": np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)}


def plain(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return sample


def noisy(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
    noise = tf.random.stateless_uniform([8, 8, 3], key, 0, 9, tf.int32)
    return {"image": sample["image"] + tf.cast(noise, tf.uint8)}


RANDOM = [FLIP, BRIGHT, {"map": noisy}, {"random_flip_up_down": {"field": "image"}}]
OTHERS = [RESIZE, CAST, {"map": plain}, "cache"]


def names(*transforms: Any) -> list[str]:
    definition = parse({"source": {"arrays": ARRAYS}, "transforms": list(transforms)})
    return [step.draw_name for step in name_draws(definition.transforms) if step.random]


def with_name(transform: dict[str, Any], name: str) -> dict[str, Any]:
    ((kind, options),) = transform.items()
    options = options if isinstance(options, dict) else {"function": options}
    return {kind: {**options, "draw": name}}


def test_transforms_of_a_kind_are_numbered() -> None:
    assert names(FLIP, RESIZE, {"map": plain}, {"map": noisy}, FLIP, {"map": noisy}) == [
        "random_flip_left_right-0",
        "map-0",
        "random_flip_left_right-1",
        "map-1",
    ]
    assert names(FLIP, with_name(FLIP, "second"), FLIP)[1:] == [
        "second",
        "random_flip_left_right-1",
    ]


@examples(60)
@given(data=st.data())
def test_other_steps_and_caches_change_no_draws(data: Any) -> None:
    random = data.draw(st.lists(st.sampled_from(RANDOM), max_size=6))
    steps: list[Any] = [*random]
    for number in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(steps)))
        named = with_name(data.draw(st.sampled_from(RANDOM)), f"new {number}")
        steps.insert(place, data.draw(st.sampled_from([*OTHERS, named])))
    found = [name for name in names(*steps) if not name.startswith("new ")]
    assert found == names(*random)
    assert len(set(found)) == len(random)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            [with_name(FLIP, "a"), RESIZE, with_name(BRIGHT, "a")],
            r"^transforms\[2\].random_brightness: draw: transforms\[0\] is also named 'a', and",
        ),
        (
            [with_name(BRIGHT, "random_flip_left_right-0"), FLIP],
            r"^transforms\[1\].random_flip_left_right: draw: transforms\[0\] is also named",
        ),
        (
            [with_name({"map": plain}, "a")],
            r"^transforms\[0\].map: draw: the function takes no key",
        ),
        ([{"map": "no_such_module:f"}], r"^transforms\[0\].map: no module 'no_such_module'"),
    ],
)
def test_name_that_cannot_be_is_refused(transforms: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        names(*transforms)


def test_names_have_keys_of_their_own() -> None:
    transforms = [FLIP, FLIP, with_name(FLIP, "a"), {"map": noisy}]
    definition = parse({"source": {"arrays": ARRAYS}, "transforms": transforms})
    steps = list(enumerate(name_draws(definition.transforms)))
    keys = [tf.constant([3, number], tf.int64) for number in range(9)]
    made = [tuple(step_key(step, key).numpy().tolist()) for step in steps for key in keys]
    assert len(set(made)) == 4 * 9
    elsewhere = [(ordinal + 5, transform) for ordinal, transform in steps]
    assert made == [tuple(step_key(step, key).numpy()) for step in elsewhere for key in keys]


def images(*transforms: Any) -> list[Any]:
    """Returns what a plan without a cache makes of each image under keys of an epoch."""
    source = open_source(parse({"source": {"arrays": ARRAYS}}).source)  # type: ignore[arg-type]
    definition = parse({"source": {"arrays": ARRAYS}, "transforms": list(transforms), "batch": 2})
    plan = plan_indexed("p", definition, source, cached=False)
    slots = plan.order(5).slots(0, 24)
    function = tf.function(sample_function(plan.source, plan.steps), autograph=False)
    rows = plan.source.read(slots.index)["image"]
    made = zip(rows, slots.key, strict=True)
    return [function({"image": row}, tf.constant(key))["image"].numpy() for row, key in made]


def test_resize_before_a_random_flip_changes_no_flip() -> None:
    expected = images(FLIP, BRIGHT)
    np.testing.assert_array_equal(images(RESIZE, FLIP, CAST, BRIGHT), expected)
    assert not np.array_equal(images(with_name(FLIP, "other"), BRIGHT), expected)
