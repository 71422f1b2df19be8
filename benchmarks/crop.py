"""CPU time of decoding and cropping a photo, compared with TensorFlow's own operations.

    .venv/bin/python -m benchmarks.crop

`random_resized_crop`, fused with decoding, against `stateless_sample_distorted_bounding_box` and
`decode_and_crop_jpeg`. Both draw a window for each photo, but decode the same one from a table,
since the time depends on the sizes of photo and window. One thread decodes. The two take turns; the
result is the median of the pairs' ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from benchmarks.photos import PATTERN, describe, photo_folder

from infeed_server.pipeline.picture_steps import fuse_decode_and_crop
from infeed_server.transforms.decode import DecodeImage
from infeed_server.transforms.geometry import RandomResizedCrop

PAIRS = 7
MAX_PHOTOS = 300
SAMPLES = 4800
"""Samples of each run: many, so that the start hardly counts."""

SIDE = 224

Step = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""File, key and window to the cropped image."""


def cropped_by_infeed(contents: tf.Tensor, key: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    class FixedCrop(RandomResizedCrop):
        def choose_window(self, shape: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([super().choose_window(shape, key)]):
                return tf.identity(window)

    decode = DecodeImage(field="image")
    crop = FixedCrop(field="image", size=(SIDE, SIDE))
    [(_, step)] = fuse_decode_and_crop([(0, decode), (1, crop)])
    return step.apply({"image": contents}, key)["image"]


def cropped_by_tensorflow(contents: tf.Tensor, key: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    drawn = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(contents),
        tf.zeros([0, 0, 4]),
        key,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    with tf.control_dependencies([drawn.begin]):
        pixels = tf.io.decode_and_crop_jpeg(contents, tf.identity(window), channels=3)
    return tf.cast(tf.round(tf.image.resize(pixels, [SIDE, SIDE])), tf.uint8)


def read_photos() -> list[bytes]:
    return [file.read_bytes() for file in sorted(photo_folder().glob(PATTERN))[:MAX_PHOTOS]]


def draw_windows(photos: list[bytes]) -> list[list[int]]:
    """Returns a window for each photo, as torchvision draws them."""
    random = np.random.default_rng(0)
    windows = []
    for photo in photos:
        height, width, _ = tf.io.extract_jpeg_shape(photo).numpy().tolist()
        while True:
            root = (height * width * random.uniform(0.08, 1)) ** 0.5
            aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3))) ** 0.5
            h, w = round(root / aspect), round(root * aspect)
            if h <= height and w <= width:
                break
        y, x = random.integers(height - h, endpoint=True), random.integers(width - w, endpoint=True)
        windows.append([int(y), int(x), h, w])
    return windows


def batches(step: Step, photos: list[bytes], windows: list[list[int]]) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    samples = tf.data.Dataset.from_tensor_slices((photos, np.array(windows, np.int32)))
    samples = samples.repeat().take(SAMPLES).enumerate()

    def cropped(number: tf.Tensor, sample: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        contents, window = sample
        return step(contents, tf.stack([number, number]), window)

    return samples.map(cropped, num_parallel_calls=1).batch(64).with_options(options)


def cpu_milliseconds(dataset: tf.data.Dataset) -> float:
    """Returns the CPU time of a sample."""
    begin = time.process_time()
    for _ in dataset:
        pass
    return (time.process_time() - begin) / SAMPLES * 1000


def main() -> None:
    photos = read_photos()
    windows = draw_windows(photos)
    ours = batches(cropped_by_infeed, photos, windows)
    theirs = batches(cropped_by_tensorflow, photos, windows)
    for first, second in zip(ours.take(2), theirs.take(2), strict=True):
        np.testing.assert_array_equal(first, second)
    pairs = [(cpu_milliseconds(ours), cpu_milliseconds(theirs)) for _ in range(PAIRS)]
    print(f"{describe()}; CPU per photo:")
    for title, values in (
        ("infeed", [own for own, _ in pairs]),
        ("TensorFlow's operations", [other for _, other in pairs]),
    ):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{title:24} median {middle:.3f} ms  (min {low:.3f}, max {high:.3f})")
    ratios = [other / own for own, other in pairs]
    print(f"{'speed ratio':24} median {statistics.median(ratios):.3f} of {PAIRS} pairs")


if __name__ == "__main__":
    main()
