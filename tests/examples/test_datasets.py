"""Dataset functions: what infeed delivers is what the function's own dataset gives, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import infeed


def dataset(served: Any, name: str) -> tf.data.Dataset:
    """What a function of `functions.py` returns under the seed that is served, 0."""
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
    reference = dataset(served, "interleaved")
    expected = [element for _ in range(2) for element in reference.as_numpy_iterator()]
    assert len(batches) == len(expected) == 4
    for batch, (number, square) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(batch["number"], number)
        np.testing.assert_array_equal(batch["square"], square)
        np.testing.assert_array_equal(batch["square"], batch["number"] ** 2)
        assert batch.mask.all()
    # Each epoch holds each number once at most, and is shuffled in another way.
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
    reference = dataset(served, "with_py_function").batch(100).get_single_element()
    for field in ("features", "label"):
        np.testing.assert_array_equal(rows[field], np.concatenate([reference[field]] * 2))
    value = np.arange(50)
    expected = np.stack([value, value / 2, value % 7], axis=1).astype(np.float32)
    np.testing.assert_array_equal(rows["features"][:50], expected)


def test_py_function_in_a_server_of_its_own(example: Any, server_process: Any) -> None:
    served = example("dataset_py_function")
    address = server_process(served.text).address
    with infeed.connect(address, served.pipeline, epochs=1) as feed:
        labels = np.concatenate([batch["label"] for batch in feed])
    np.testing.assert_array_equal(labels, np.arange(50) % 2)


def test_resize_and_convert_image_dtype(example: Any, draw: Any) -> None:
    served = example("dataset_resize_convert")
    for number in range(20):
        picture = draw(number, 90 + 7 * number, 200 - 3 * number, 1 if number == 3 else 3)
        (served.data / f"{number:02}.jpg").write_bytes(tf.io.encode_jpeg(picture).numpy())
    rows = served.read()
    assert rows.sizes == [8, 8, 4]
    reference = dataset(served, "resized").batch(100).get_single_element()
    np.testing.assert_array_equal(rows["image"], reference["image"])
    assert rows["image"].shape == (20, 128, 128, 3)
    assert 0 <= rows["image"].min() < rows["image"].max() <= 1


def test_data_can_lie_elsewhere(example: Any, draw: Any, tmp_path: Path, monkeypatch: Any) -> None:
    served = example("dataset_resize_convert")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number in range(8):
        picture = tf.io.encode_jpeg(draw(number, 40, 40)).numpy()
        (elsewhere / f"{number}.jpg").write_bytes(picture)
    monkeypatch.setenv("DATA", str(elsewhere))
    assert served.read().sizes == [8]
