"""Tests of `pipeline/native_pictures.py`: the pixels are the graph's, for any steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.datasets import jpeg
from tests.harness.native_double import require_decoder
from tests.harness.pictures import exif, exif_segment, insert

from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_graph import columns_function

COUNT = 12

DECODERS = ["tensorflow", "auto"]

RESIZES: list[dict[str, Any]] = [{"size": [30, 26]}, {"size": [19, 40]}, {"short_side": 21}]
UPRIGHT = {"decode_image": {"field": "image", "exif": "apply"}}
CROPS = ["center_crop", "random_crop"]


def crop(rng: np.random.Generator, low: int, high: int) -> dict[str, Any]:
    name = CROPS[rng.integers(2)]
    return {name: {"field": "image", "size": rng.integers(low, high, 2).tolist()}}


def random_transforms(seed: int) -> list[Any]:
    """Returns steps that the native decoder takes, perhaps with others behind."""
    rng = np.random.default_rng(seed)
    shape = ["c", "cr", "r", "crc", "rc", "x", "xc"][seed % 7]
    steps: list[Any] = [UPRIGHT if rng.integers(2) else {"decode_image": {"field": "image"}}]
    for number, letter in enumerate(shape):
        if letter == "c":
            steps.append(crop(rng, 30, 40) if number == 0 else crop(rng, 5, 19))
        elif letter == "x":
            options = {"scale": [0.05, 1.0], "size": rng.integers(19, 50, 2).tolist()}
            steps.append({"random_resized_crop": {"field": "image", **options}})
        else:
            options = RESIZES[rng.integers(3 if shape.endswith("c") else 2)]
            antialias = bool(rng.integers(2))
            steps.append({"resize": {"field": "image", "antialias": antialias, **options}})
    if rng.integers(2):
        steps.append({"random_flip_left_right": {"field": "image"}})
    if rng.integers(2):
        steps.append({"random_brightness": {"field": "image", "max_delta": 0.2}})
    return steps


def pixels_of(plan: IndexedPlan, columns: Any) -> Any:
    """Returns the pixels that a plan's native decoder and graph make."""
    keys = np.random.default_rng(0).integers(0, 1 << 62, (COUNT, 2))
    if plan.native is None:
        return columns_function(plan.source.columns, plan.sample_function())(columns, keys)["image"]
    found = plan.native.make(columns, keys, map)
    left = columns_function(plan.native.columns, plan.native.sample_function())(
        found.left, keys[~found.done]
    )
    pixels = np.empty((COUNT, *left["image"].shape[1:]), left["image"].dtype.as_numpy_dtype)
    pixels[~found.done] = left["image"]
    if found.done.any():
        pixels[found.done] = found.fields["image"][found.done]
    return pixels


@pytest.mark.parametrize("seed", range(7))
def test_random_steps_make_the_pixels_of_the_graph(seed: int) -> None:
    require_decoder()
    sizes = [(40 + 7 * number, 90 - 3 * number) for number in range(COUNT)]
    files = [jpeg(number, size, grey=number % 5 == 0) for number, size in enumerate(sizes)]
    files[4] = tf.io.encode_png(np.full((70, 60, 3), np.arange(3), np.uint8)).numpy()
    for number, orientation in ((2, 1), (3, 3), (7, 6), (8, 5)):
        files[number] = insert(files[number], exif_segment(exif(orientation)))
    source = {"arrays": {"image": np.array(files, object)}}
    transforms = random_transforms(seed)
    pipeline = parse({"source": source, "transforms": transforms, "batch": COUNT})
    plans = [
        plan_indexed("p", pipeline, pipeline.open(), decoder=d) for d in ("tensorflow", "auto")
    ]
    expected, found = (pixels_of(plan, {"image": np.array(files, object)}) for plan in plans)
    np.testing.assert_array_equal(found, expected, err_msg=str(transforms))
    assert plans[1].native is not None
    counts = {"decoded": COUNT - 1, "other format": 1}
    assert Counter(plans[1].native.counts.by_status()) == Counter(counts)


def test_size_decides_what_is_taken_without_random_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    require_decoder()
    monkeypatch.setattr("infeed_server.pipeline.native_pictures._MAX_SIZES", 3)
    files = np.array([jpeg(n, (40 + 9 * (n % 5), 60)) for n in range(COUNT)], object)
    evaluation = [
        {"decode_image": {"field": "image"}},
        {"resize": {"field": "image", "short_side": 30}},
        {"center_crop": {"field": "image", "size": [24, 20]}},
    ]
    source = {"arrays": {"image": files}}
    pipeline = parse({"source": source, "transforms": evaluation, "batch": COUNT})
    graph, plan = (plan_indexed("p", pipeline, pipeline.open(), decoder=d) for d in DECODERS)
    expected = pixels_of(graph, {"image": files})
    assert plan.native is not None
    for some in (slice(0, 2), slice(1, 4), slice(0, 12), slice(3, 5)):
        keys = np.zeros((len(files[some]), 2), np.int64)
        made = plan.native.make({"image": files[some]}, keys, map)
        assert made.done.all()
        np.testing.assert_array_equal(made.fields["image"], expected[some])
