"""Choices: how often transforms are applied, their keys, and what cannot be chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import TypeAdapter, ValidationError

import infeed
from infeed.shared.errors import ConfigError
from infeed_augment.choice import OneOf, RandomApply
from infeed_augment.colour import RandomBrightness
from infeed_augment.tones import Invert, Posterize
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.sample_graph import step_key
from infeed_server.transforms import (
    AnyTransform,
    Cast,
    RandomCrop,
    RandomFlipLeftRight,
    Transform,
)

KEYS = [(number, 3) for number in range(400)]
LIST: TypeAdapter[Transform] = TypeAdapter(AnyTransform)


def parse(options: Any) -> Any:
    return LIST.validate_python(options)


def test_a_share_of_the_samples_is_transformed(run_each: Any) -> None:
    options = {"probability": 0.3, "transform": {"invert": {"field": "x"}}}
    transform = parse({"random_apply": options})
    assert transform == RandomApply(probability=0.3, transform=Invert(field="x"))
    pixels = np.zeros((len(KEYS), 1, 1, 3), np.uint8)
    applied = [result["x"].max() == 255 for result in run_each(transform, {"x": pixels}, KEYS)]
    assert abs(np.mean(applied) - 0.3) < 0.07
    sample = {"x": tf.zeros([1, 1, 3], tf.uint8)}
    drawn = [transform.draw(sample, tf.constant(key, tf.int64)) for key in KEYS[:20]]
    assert [bool(draws["applied"]) for draws in drawn] == applied[:20]


def test_one_of_several_is_drawn_by_weight(run_each: Any) -> None:
    names = ["posterize", "invert", "invert"]
    transform = OneOf(
        transforms=(Posterize(field="x", bits=1), Invert(field="x"), Invert(field="x")),
        weights=(1, 2, 1),
    )
    pixels = np.full((len(KEYS), 1, 1, 3), 200, np.uint8)
    results = [int(result["x"][0, 0, 0]) for result in run_each(transform, {"x": pixels}, KEYS)]
    assert abs(np.mean(np.array(results) == 128) - 0.25) < 0.07
    sample = {"x": tf.constant(pixels[0])}
    for key, result in zip(KEYS[:20], results, strict=False):
        place = transform.draw(sample, tf.constant(key, tf.int64))["chosen"].numpy().decode()
        assert (place == "transforms[0].posterize") == (result == 128)
        assert names[int(place[11])] in place


def test_draws_within_a_choice_are_keyed_by_its_name(run: Any, image: Any) -> None:
    flip = RandomFlipLeftRight(field="x")
    inner = (flip, RandomBrightness(field="x", max_delta=0.2), flip)
    transform = RandomApply(transform=inner, probability=1.0)
    key = tf.constant([17, 4], tf.int64)
    expected = {"x": tf.constant(image)}
    for step in enumerate(name_draws(inner)):
        expected = step[1].apply(expected, step_key(step, key))
    np.testing.assert_array_equal(run(transform, {"x": image})["x"], expected["x"])
    drawn = transform.draw({"x": tf.constant(image)}, key)
    assert {"applied", "random_flip_left_right.flipped", "random_brightness.delta"} == {*drawn}
    named = name_draws([flip, transform, flip])
    assert [step.draw_name for step in named] == [
        "random_flip_left_right-0",
        "random_apply-0",
        "random_flip_left_right-1",
    ]
    parts = named[1].identity()["random_apply"]["of"]
    assert [next(iter(part.values())).get("draw") for part in parts] == [
        "random_flip_left_right-0",
        "random_brightness-0",
        "random_flip_left_right-1",
    ]


def test_a_function_of_the_user_is_found_and_identified(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "def half(sample):\n    return {**sample, 'x': sample['x'] // 2}\n"
    )
    options = {"random_apply": {"transform": {"map": "half:half"}, "probability": 1.0}}
    own = parse({"random_apply": {"transform": {"invert": {"field": "x"}}}})
    transform = parse(options).resolve(tmp_path)
    assert transform.has_other_code
    assert not own.has_other_code
    assert transform.fields() is None
    assert own.fields() == {"x"}
    assert "half:half" in str(transform.identity())
    assert int(transform.apply({"x": tf.constant(8)}, tf.constant([1, 2], tf.int64))["x"]) == 4


def test_what_cannot_be_chosen_is_refused(spec: Any) -> None:
    with pytest.raises(ValidationError, match="cache cannot apply to only some samples"):
        parse({"random_apply": {"transform": "cache"}})
    with pytest.raises(ValidationError, match="a Python function cannot apply"):
        parse({"random_apply": {"transform": {"map": {"function": "a:b", "python": True}}}})
    with pytest.raises(ValidationError, match="1 weights for 2 transforms"):
        OneOf(transforms=(Invert(field="x"), Invert(field="x")), weights=(1.0,))
    with pytest.raises(ConfigError, match=r"random_apply: names, types .* x: float32\[8, 8, 3\]"):
        spec(
            RandomApply(transform=Cast(field="x", dtype="float32")),
            {"x": tf.TensorSpec([8, 8, 3], tf.uint8)},
        )
    with pytest.raises(ValidationError, match="random_crop cannot apply to only some samples"):
        RandomApply(transform=RandomCrop(field="x", size=(2, 2)))
    with pytest.raises(ValidationError, match="moves x and y; give each its own choice"):
        RandomApply(transform=tuple(RandomFlipLeftRight(field=field) for field in ("x", "y")))


DEFINITION = """
pipelines:
  n:
    source: {{arrays: {folder}/n.npz}}
    targets: {{mask: mask, points: keypoints}}
    transforms:
      - one_of:
          transforms:
            - random_apply: {{transform: {{random_flip_left_right: {{field: image}}}}}}
            - random_rotation: {{field: image, degrees: 80}}
            - invert: {{field: image}}
      - rand_augment: {{field: image, operations: 1}}
    batch: {{size: 60}}
"""


def test_masks_and_points_move_as_is_chosen(serve: Any, tmp_path: Path) -> None:
    image = np.zeros((60, 41, 41, 3), np.uint8)
    image[:, 14:18, 22:26] = 200
    mask = image[..., 0] // 100
    points = np.tile(np.float32([[24.0, 16.0]]), (60, 1, 1))
    np.savez(tmp_path / "n.npz", image=image, mask=mask, points=points)
    server = serve(DEFINITION.format(folder=tmp_path))
    with infeed.connect(str(server.address), "n", epochs=1) as feed:
        batch = next(feed)
    columns = np.arange(41) + 0.5
    found = set()
    for pixels, moved, point in zip(batch["image"], batch["mask"], batch["points"], strict=True):
        count = moved.astype(float).sum()
        assert count > 0
        place = [(moved.sum(axis) * columns).sum() / count for axis in (0, 1)]
        np.testing.assert_allclose(place, point[0], atol=0.8)
        is_bright = abs(int(pixels[moved > 0].mean()) - int(pixels[moved == 0].mean())) > 5
        assert is_bright
        found.add(tuple(point[0].round(1)))
    assert len(found) > 15
    torn = DEFINITION.replace("targets: {{mask: mask, points: keypoints}}", "")
    with pytest.raises(ConfigError, match=r"one_of: field 'image' would move at random"):
        serve(torn.format(folder=tmp_path))
