"""Dataset functions: infeed delivers the elements of the function's dataset, in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def reference_dataset(served: Any, name: str) -> tf.data.Dataset:
    """Returns the dataset of a function of `functions.py` for the served seed, 0."""
    function = getattr(served.functions(), name)
    tf.random.set_seed(0)
    result: tf.data.Dataset = function()
    return result


def test_cache_map_shuffle_interleave_batch_and_prefetch(example: Any) -> None:
    served = example("dataset_interleave")
    numbers = iter(range(750))
    for name, count in (("a", 200), ("b", 250), ("c", 300)):
        lines = "".join(f"{next(numbers)}\n" for _ in range(count))
        (served.data / f"{name}.txt").write_text(lines)
    with served.connect(epochs=2) as feed:
        assert feed.batch_size == 256
        assert feed.guarantee.order == "deterministic"
        batches = list(feed)
    reference = reference_dataset(served, "interleaved")
    expected = [element for _ in range(2) for element in reference.as_numpy_iterator()]
    assert len(batches) == len(expected) == 4
    for batch, (number, square) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(batch["number"], number)
        np.testing.assert_array_equal(batch["square"], square)
        np.testing.assert_array_equal(batch["square"], batch["number"] ** 2)
        assert batch.mask.all()
    # Each epoch has each number at most once, in another order.
    first, second = (
        np.concatenate([batch["number"] for batch in batches[epoch : epoch + 2]])
        for epoch in (0, 2)
    )
    assert len(set(first)) == len(set(second)) == 512
    assert first.tolist() != second.tolist()
    assert [batch.epoch for batch in batches] == [0, 0, 1, 1]


def test_py_function_and_cache(example: Any) -> None:
    served = example("dataset_py_function")
    rows = served.read(epochs=2)
    assert rows.sizes == [10] * 10
    reference = reference_dataset(served, "with_py_function").batch(100).get_single_element()
    for field in ("features", "label"):
        np.testing.assert_array_equal(rows[field], np.concatenate([reference[field]] * 2))
    value = np.arange(50)
    expected = np.stack([value, value / 2, value % 7], axis=1).astype(np.float32)
    np.testing.assert_array_equal(rows["features"][:50], expected)


def test_resize_and_convert_image_dtype(example: Any, draw_image: Any) -> None:
    served = example("dataset_resize_convert")
    for number in range(20):
        image = draw_image(number, 90 + 7 * number, 200 - 3 * number, 1 if number == 3 else 3)
        (served.data / f"{number:02}.jpg").write_bytes(tf.io.encode_jpeg(image).numpy())
    rows = served.read()
    assert rows.sizes == [8, 8, 4]
    reference = reference_dataset(served, "resized").batch(100).get_single_element()
    np.testing.assert_array_equal(rows["image"], reference["image"])
    assert rows["image"].shape == (20, 128, 128, 3)
    assert 0 <= rows["image"].min() < rows["image"].max() <= 1


def test_data_path_from_the_environment(
    example: Any, draw_image: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    served = example("dataset_resize_convert")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number in range(8):
        image = tf.io.encode_jpeg(draw_image(number, 40, 40)).numpy()
        (elsewhere / f"{number}.jpg").write_bytes(image)
    monkeypatch.setenv("DATA", str(elsewhere))
    assert served.read().sizes == [8]
