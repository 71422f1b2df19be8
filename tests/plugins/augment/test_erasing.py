"""Random erasing: torchvision's distribution of rectangles, and what covers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

import infeed
from infeed.shared.errors import ConfigError
from infeed.shared.finish import finish
from infeed.shared.spec import Erase
from infeed.shared.tensorflow.finish import finish as tensorflow_finish
from infeed_augment.erasing import RandomErasing

PIXELS = np.full((40, 60, 3), 9, np.uint8)


def windows(transform: RandomErasing, count: int) -> Any:
    """Returns y, x, height and width for many keys."""
    keys = tf.constant([[number, 5] for number in range(count)], tf.int64)
    drawn = tf.map_fn(
        lambda key: tf.stack([*transform.draw_field(PIXELS, key).values()]), keys, tf.int32
    )
    return drawn.numpy()[:, :4]


def test_rectangles_have_torchvisions_distribution() -> None:
    drawn = windows(RandomErasing(field="x", probability=0.8), 2000)
    covered = drawn[drawn[:, 2] > 0]
    assert abs(len(covered) / len(drawn) - 0.8) < 0.04
    height, width = covered[:, 2], covered[:, 3]
    rng = np.random.default_rng(0)
    areas, ratios = [], []
    while len(areas) < 4000:
        area = 40 * 60 * rng.uniform(0.02, 0.33)
        ratio = np.exp(rng.uniform(np.log(0.3), np.log(3.3)))
        h, w = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if h < 40 and w < 60:
            areas.append(h * w)
            ratios.append(h / w)
    for own, twin in ((height * width, areas), (height / width, ratios)):
        shares = np.linspace(0.05, 0.95, 10)
        np.testing.assert_allclose(np.quantile(own, shares), np.quantile(twin, shares), rtol=0.15)
    assert ((covered[:, 0] + height <= 40) & (covered[:, 1] + width <= 60)).all()
    middle = (covered[:, 1] / (60 - width)).mean()
    assert abs(middle - 0.5) < 0.03


@pytest.mark.parametrize("value", [0, 200, None])
def test_the_rectangle_alone_is_covered(run_each: Any, value: int | None) -> None:
    transform = RandomErasing(field="x", probability=1.0, value=value)
    keys = [(number, 5) for number in range(8)]
    results = run_each(transform, {"x": np.stack([PIXELS] * 8)}, keys)
    for (y, x, height, width), result in zip(windows(transform, 8), results, strict=True):
        inside = result["x"][y : y + height, x : x + width]
        if value is None:
            assert inside.std() > 40
        else:
            assert (inside == value).all()
        assert (result["x"] != 9).any(axis=2).sum() <= height * width
    assert len({result["x"].tobytes() for result in results}) == 8


def noise(size: int, seed: int) -> Any:
    """Returns the values of spec.proto, one by one."""
    values = []
    for i in range(size):
        h = (i * 2654435761 & 0xFFFFFFFF) ^ (seed & 0xFFFFFFFF)
        for shift, factor in ((15, 2246822507), (13, 3266489917)):
            h = (h ^ h >> shift) * factor & 0xFFFFFFFF
        values.append(h >> 24)
    return np.array(values, np.uint8)


@pytest.mark.parametrize("value", [None, 7])
def test_frameworks_cover_as_the_protocol_says(value: int | None) -> None:
    draws = np.array([[2, 3, 20, 31, -5], [0, 0, 0, 0, 9], [0, 0, 40, 60, 2**31 - 1]], np.int32)
    fields = {"x": np.stack([PIXELS] * 3), "draws": draws}
    expected = fields["x"].copy()
    for picture, (top, left, bottom, right, seed) in zip(expected, draws, strict=True):
        window = np.s_[top:bottom, left:right]
        cover = noise(PIXELS.size, int(seed)).reshape(PIXELS.shape)[window]
        picture[window] = cover if value is None else value
    mask = np.array([True, True, True])
    transform = Erase("x", "draws", value)
    result = finish(fields, [transform], mask)
    assert {*result} == {"x"}
    np.testing.assert_array_equal(result["x"], expected)
    assert (fields["x"] == 9).all()
    by_tensorflow = tensorflow_finish(
        {name: tf.constant(x) for name, x in fields.items()}, [transform], tf.constant(mask)
    )
    np.testing.assert_array_equal(by_tensorflow["x"], expected)


def test_noise_is_uniform_and_without_pattern() -> None:
    pictures = np.stack([noise(64 * 48 * 3, seed).reshape(64, 48, 3) for seed in (1, 2, -9)])
    counts = np.bincount(pictures.reshape(-1) >> 4, minlength=16) / pictures.size
    np.testing.assert_allclose(counts, 1 / 16, atol=0.006)
    for axis in range(4):
        one = np.moveaxis(pictures, axis, 0).astype(float)
        assert abs(np.corrcoef(one[:-1].reshape(-1), one[1:].reshape(-1))[0, 1]) < 0.02


@pytest.mark.parametrize("value", ["null", 7])
def test_bits_at_the_trainer_are_those_at_the_server(
    serve: Any, tmp_path: Path, value: object
) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "n.npz", image=rng.integers(0, 256, (12, 16, 12, 3), np.uint8))
    erasing = f"{{field: image, probability: 0.8, value: {value}}}"
    text = f"""
pipelines:
  n:
    source: {{arrays: {tmp_path}/n.npz}}
    transforms:
      - random_flip_left_right: {{field: image}}
      - random_erasing: {erasing}
      - rename: {{fields: {{image: pixels}}}}
      - normalize: {{field: pixels, scale: 255.0}}
    batch: {{size: 4}}
"""
    at_trainer = text.replace("0.8", "0.8, at: trainer")
    found = []
    for definition, place in ((text, "trainer"), (at_trainer, "trainer"), (at_trainer, "server")):
        address = str(serve(definition).address)
        with infeed.connect(address, "n", epochs=2, finish=place) as feed:
            found.append(np.concatenate([batch["pixels"].copy() for batch in feed]))
            draws = [field.name for field in feed.spec.wire_spec if field.name != "pixels"]
            assert draws == (["image.random_erasing-0"] if definition is at_trainer else [])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    with pytest.raises(ConfigError, match=r"the trainer changes 'image' .*; put the others"):
        serve(
            at_trainer.replace(
                "normalize: {field: pixels, scale: 255.0}", "invert: {field: pixels}"
            )
        )


def test_nothing_is_covered_at_probability_zero(run: Any) -> None:
    transform = RandomErasing(field="x", probability=0.0, value=None)
    np.testing.assert_array_equal(run(transform, {"x": PIXELS})["x"], PIXELS)
    with pytest.raises(ValidationError, match=r"scale: should be \[min, max\]"):
        RandomErasing(field="x", scale=(0.5, 1.5))
