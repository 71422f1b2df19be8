from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.harness.examples import examples

from infeed.errors import ConfigError
from infeed_server.transforms import CenterCrop, RandomCrop, RandomResizedCrop

KEYS = [(0, 0), (1, 0), (0, 1), (2**62, -5), (-1, 2**62)]


@pytest.mark.parametrize("size", [(40, 50), (39, 50), (11, 7), (1, 1), (40, 3)])
def test_center_crop_is_that_of_tf_image(run: Any, image: Any, size: tuple[int, int]) -> None:
    result = run(CenterCrop(field="image", size=size), {"image": image})["image"]
    np.testing.assert_array_equal(result, tf.image.resize_with_crop_or_pad(image, *size))


def test_random_crop_is_that_of_tf_image(run_each: Any, image: Any) -> None:
    crop, images = RandomCrop(field="image", size=(11, 30)), {"image": np.stack([image] * 5)}
    for key, result in zip(KEYS, run_each(crop, images, KEYS), strict=True):
        seed = tf.constant(key, tf.int64)
        expected = tf.image.stateless_random_crop(image, [11, 30, 3], seed=seed)
        np.testing.assert_array_equal(result["image"], expected)


@examples(30)
@given(
    shape=st.tuples(st.integers(5, 40), st.integers(5, 40), st.sampled_from([1, 3])),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    key=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
)
def test_random_crop_takes_tf_images_window_for_every_key(
    shape: tuple[int, int, int], size: tuple[int, int], key: tuple[int, int]
) -> None:
    pixels = tf.reshape(tf.range(np.prod(shape)), shape)
    seed = tf.constant(key, tf.int64)
    result = RandomCrop(field="image", size=size).apply({"image": pixels}, seed)["image"]
    expected = tf.image.stateless_random_crop(pixels, [*size, shape[2]], seed)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("method", ["bilinear", "nearest", "area"])
def test_random_resized_crop(run_each: Any, image: Any, method: Any) -> None:
    crop = RandomResizedCrop(field="image", size=(16, 12), method=method)
    results = run_each(crop, {"image": np.stack([image] * 5)}, KEYS)
    for key, result in zip(KEYS, results, strict=True):
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            image.shape,
            [[[0.0, 0.0, 1.0, 1.0]]],
            tf.constant(key, tf.int64),
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 1.3333),
            area_range=(0.08, 1.0),
        )
        window = tf.image.resize(tf.slice(image, begin, size), [16, 12], method)
        expected = tf.cast(tf.round(window), tf.uint8)
        np.testing.assert_array_equal(result["image"], expected)


def test_windows_keep_to_scale_and_ratio() -> None:
    crop = RandomResizedCrop(field="image", size=(8, 8), scale=(0.2, 0.5), ratio=(0.5, 2.0))
    shape = tf.constant([400, 600, 3])
    windows = []
    for number in range(50):
        y, x, height, width = crop.window(shape, tf.constant([number, 1], tf.int64)).numpy()
        assert y >= 0
        assert x >= 0
        assert y + height <= 400
        assert x + width <= 600
        assert 0.19 < height * width / (400 * 600) < 0.51
        assert 0.49 < width / height < 2.02
        windows.append((y, x, height, width))
    assert len(set(windows)) == 50


def test_the_same_key_gives_the_same_crop_and_another_another(run_each: Any, image: Any) -> None:
    keys = [(5, 5), (5, 5), *((5, number) for number in range(6))]
    crop, images = RandomCrop(field="image", size=(10, 10)), {"image": np.stack([image] * 8)}
    first, again, *others = (each["image"] for each in run_each(crop, images, keys))
    np.testing.assert_array_equal(first, again)
    assert any((first != other).any() for other in others)


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop])
def test_an_image_that_is_too_small_fails_with_its_size(run: Any, key: Any, crop: Any) -> None:
    transform = crop(field="image", size=(20, 64))
    told = f"{transform.name}: field image must be at least 20 x 64 pixels"
    pixels = tf.zeros([33, 50, 3], tf.uint8)
    sized = tf.data.Dataset.from_generator(
        lambda: iter([pixels]), output_signature=tf.TensorSpec([None, None, 3], tf.uint8)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s){told}.*33 50"):
        next(iter(sized.map(lambda x: transform.apply({"image": x}, key))))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{told}.* it is \[33, 50\]"):
        transform.apply({"image": pixels}, key)


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop])
def test_images_of_one_shape_that_are_too_small_are_refused(spec: Any, crop: Any) -> None:
    with pytest.raises(ConfigError, match=r"at least 9 x 2 pixels.* it is \[8, 8\]"):
        spec(crop(field="image", size=(9, 2)), {"image": tf.TensorSpec([8, 8, 3], tf.uint8)})


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop, RandomResizedCrop])
def test_the_shape_becomes_static(spec: Any, crop: Any) -> None:
    before = {"image": tf.TensorSpec([None, None, 3], tf.uint8)}
    after = spec(crop(field="image", size=(4, 5)), before)
    assert after["image"] == tf.TensorSpec([4, 5, 3], tf.uint8)


@pytest.mark.parametrize("crop", [CenterCrop, RandomCrop, RandomResizedCrop])
def test_encoded_bytes_are_refused(spec: Any, crop: Any) -> None:
    with pytest.raises(ConfigError, match="holds encoded bytes; put decode_image before it"):
        spec(crop(field="image", size=(4, 5)), {"image": tf.TensorSpec([], tf.string)})


@pytest.mark.parametrize(
    "options", [{"scale": (0.0, 1.0)}, {"scale": (0.5, 1.1)}, {"ratio": (2.0, 1.0)}]
)
def test_ranges_are_checked(options: Any) -> None:
    with pytest.raises(ValidationError, match="should be"):
        RandomResizedCrop(field="image", size=(4, 5), **options)
