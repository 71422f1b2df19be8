"""CPU time of each augmentation of a picture, beside a plain graph of TensorFlow's operations.

    .venv/bin/python -m benchmarks.augment [NAME ...]

One thread transforms pictures of 224 x 224 pixels, each with its own draws. The two sides take
turns; the result is the median of the pairs' ratios. A twin is an operation of `tf.image`, or what
TensorFlow's model garden and KerasCV compose from such operations.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.transforms import transform_class
from infeed_server.transforms.base import RandomTransform

PAIRS = 5
SAMPLES = 400
"""Pictures of each run."""

MAX_RATIO = 1.2

Function = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Picture and key to picture."""


def uniform(key: tf.Tensor, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
    return tf.random.stateless_uniform([], key, low, high)


def blend(a: tf.Tensor, b: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    return tf.cast(tf.clip_by_value(a + factor * (b - a), 0.0, 255.0), tf.uint8)


def grey(x: tf.Tensor) -> tf.Tensor:
    return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(x))


def jitter(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    x = tf.image.stateless_random_brightness(x, 0.4, key)
    x = tf.image.stateless_random_contrast(x, 0.6, 1.4, key)
    x = tf.image.stateless_random_saturation(x, 0.6, 1.4, key)
    return tf.image.stateless_random_hue(x, 0.1, key)


def autocontrast(x: tf.Tensor) -> tf.Tensor:
    def channel(values: tf.Tensor) -> tf.Tensor:
        low = tf.cast(tf.reduce_min(values), tf.float32)
        high = tf.cast(tf.reduce_max(values), tf.float32)
        scale = 255.0 / (high - low)
        scaled = tf.clip_by_value(tf.cast(values, tf.float32) * scale - low * scale, 0.0, 255.0)
        return tf.cond(high > low, lambda: tf.cast(scaled, tf.uint8), lambda: values)

    return tf.stack([channel(x[..., n]) for n in range(3)], 2)


def equalize(x: tf.Tensor) -> tf.Tensor:
    def channel(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, tf.int32)
        counts = tf.histogram_fixed_width(values, [0, 255], nbins=256)
        nonzero = tf.reshape(tf.gather(counts, tf.where(tf.not_equal(counts, 0))), [-1])
        step = (tf.reduce_sum(nonzero) - nonzero[-1]) // 255
        table = tf.concat([[0], ((tf.cumsum(counts) + step // 2) // step)[:-1]], 0)
        table = tf.clip_by_value(table, 0, 255)
        return tf.cond(tf.equal(step, 0), lambda: values, lambda: tf.gather(table, values))

    return tf.cast(tf.stack([channel(x[..., n]) for n in range(3)], 2), tf.uint8)


def sharpness(x: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    kernel = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32)[..., None, None] / 13
    pixels = tf.cast(x, tf.float32)[None]
    smooth = tf.nn.depthwise_conv2d(pixels, tf.tile(kernel, [1, 1, 3, 1]), [1] * 4, "VALID")[0]
    smooth = tf.cast(tf.clip_by_value(smooth, 0.0, 255.0), tf.uint8)
    padding = [[1, 1], [1, 1], [0, 0]]
    is_inside = tf.pad(tf.ones_like(smooth), padding) == 1
    return blend(tf.where(is_inside, tf.pad(smooth, padding), x), x, factor)


def blur(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    distances = tf.range(-11, 12, dtype=tf.float32)
    weights = tf.exp(-0.5 * tf.square(distances / uniform(key, 0.1, 2.0)))
    weights = tf.tile((weights / tf.reduce_sum(weights))[:, None], [1, 3])
    pixels = tf.pad(tf.cast(x, tf.float32), [[11, 11], [11, 11], [0, 0]], "REFLECT")[None]
    for kernel in (weights[:, None, :, None], weights[None, :, :, None]):
        pixels = tf.nn.depthwise_conv2d(pixels, kernel, [1] * 4, "VALID")
    return tf.cast(tf.round(pixels[0]), tf.uint8)


def is_erased(key: tf.Tensor) -> tf.Tensor:
    y, x0, height, width = tf.unstack(tf.random.stateless_uniform([4], key) * [112, 112, 90, 90])
    rows, columns = tf.range(224.0)[:, None, None], tf.range(224.0)[None, :, None]
    return (rows >= y) & (rows < y + height) & (columns >= x0) & (columns < x0 + width)


def erase(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    return tf.where(is_erased(key), tf.zeros_like(x), x)


def erase_by_noise(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    noise = tf.random.stateless_uniform([224, 224, 3], key, 0, 256, tf.int32)
    return tf.where(is_erased(key), tf.cast(noise, tf.uint8), x)


def project(x: tf.Tensor, coefficients: Sequence[Any], interpolation: str = "NEAREST") -> tf.Tensor:
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=x[None],
        transforms=tf.stack([tf.stack(coefficients)]),
        output_shape=[224, 224],
        fill_value=0.0,
        interpolation=interpolation,
        fill_mode="CONSTANT",
    )[0]


def rotate(x: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    c, s = tf.cos(angle), tf.sin(angle)
    middle = 111.5
    return project(x, [c, -s, middle * (1 - c + s), s, c, middle * (1 - s - c), 0.0 * c, 0.0 * c])


def perspective(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    one, g = tf.ones([]), uniform(key, 0.0, 1e-3)
    pixels = tf.cast(x, tf.float32)
    moved = project(pixels, [one, g, 3.0 * one, g, one, one, g, g], "BILINEAR")
    return tf.cast(tf.round(moved), tf.uint8)


def operate(x: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    one, zero, half = tf.ones([]), tf.zeros([]), tf.constant(0.27)
    operations: list[Callable[[tf.Tensor], tf.Tensor]] = [
        lambda x: x,
        lambda x: project(x, [one, 0.1, zero, zero, one, zero, zero, zero]),
        lambda x: project(x, [one, zero, zero, 0.1, one, zero, zero, zero]),
        lambda x: project(x, [one, zero, -30.0, zero, one, zero, zero, zero]),
        lambda x: project(x, [one, zero, zero, zero, one, -30.0, zero, zero]),
        lambda x: rotate(x, half),
        lambda x: blend(tf.zeros([]), x, 1 + half),
        lambda x: blend(grey(x), x, 1 + half),
        lambda x: tf.image.adjust_contrast(x, 1 + half),
        lambda x: sharpness(x, 1 + half),
        lambda x: tf.bitwise.left_shift(tf.bitwise.right_shift(x, tf.constant(1, tf.uint8)), 1),
        lambda x: tf.where(x < 178, x, 255 - x),
        autocontrast,
        equalize,
    ]
    branches = [lambda f=f: f(x) for f in operations]  # type: ignore[misc]
    return tf.ensure_shape(tf.switch_case(chosen, branches), x.shape)


def rand_augment(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    for number in range(2):
        x = operate(x, tf.cast(uniform(key + number, 0.0, 14.0), tf.int32))
    return x


def aug_mix(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    gammas = tf.random.stateless_gamma([4], key, 1.0)
    shares = gammas / tf.reduce_sum(gammas)
    mixed = shares[0] * tf.cast(x, tf.float32)
    for chain in range(3):
        depth = tf.cast(uniform(key + chain, 1.0, 4.0), tf.int32)
        changed = x
        for number in range(3):
            chosen = tf.cast(uniform(key + 3 * chain + number, 1.0, 14.0), tf.int32)
            changed = operate(changed, tf.where(number < depth, chosen, 0))
        mixed += shares[chain + 1] * tf.cast(changed, tf.float32)
    return tf.cast(mixed, tf.uint8)


def zoom_out(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    top, left = tf.unstack(tf.random.stateless_uniform([2], key, 0, 225, tf.int32))
    return tf.image.pad_to_bounding_box(x, top, left, 448, 448)


CASES: dict[str, tuple[dict[str, Any], Function]] = {
    "invert": ({}, lambda x, _: 255 - x),
    "solarize": ({}, lambda x, _: tf.where(x < 128, x, 255 - x)),
    "posterize": (
        {"bits": 4},
        lambda x, _: tf.bitwise.left_shift(
            tf.bitwise.right_shift(x, tf.constant(4, tf.uint8)), tf.constant(4, tf.uint8)
        ),
    ),
    "autocontrast": ({}, lambda x, _: autocontrast(x)),
    "equalize": ({}, lambda x, _: equalize(x)),
    "grayscale": ({}, lambda x, _: grey(x)),
    "sharpness": ({"factor": 1.5}, lambda x, _: sharpness(x, tf.constant(1.5))),
    "random_color_jitter": (
        {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        jitter,
    ),
    "random_gaussian_blur": ({"kernel": 23}, blur),
    "random_erasing": ({"probability": 1.0}, erase),
    "random_rotation": ({"degrees": 30}, lambda x, key: rotate(x, uniform(key, -0.5, 0.5))),
    "random_affine": (
        {"degrees": 30, "translate": [0.1, 0.1]},
        lambda x, key: rotate(x, uniform(key, -0.5, 0.5)),
    ),
    "random_perspective": ({"probability": 1.0}, perspective),
    "rand_augment": ({}, rand_augment),
    "aug_mix": ({"interpolation": "nearest"}, aug_mix),
    "random_zoom_out": ({"probability": 1.0, "scale": [2.0, 2.0]}, zoom_out),
    "random_erasing:noise": ({"probability": 1.0, "value": None}, erase_by_noise),
}
"""Transform, with a note on its options, to its options and its twin."""


def pictures(function: Function) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    small = np.random.default_rng(0).integers(0, 256, (16, 14, 14, 3), np.uint8)
    images = tf.saturate_cast(tf.image.resize(small, [224, 224], "bicubic"), tf.uint8)

    def transformed(number: tf.Tensor) -> tf.Tensor:
        return function(images[number % 16], tf.stack([number, number]))

    return tf.data.Dataset.range(SAMPLES).map(transformed, 1).batch(16).with_options(options)


def cpu_milliseconds(dataset: tf.data.Dataset) -> float:
    """Returns the CPU time of a picture."""
    begin = time.process_time()
    for _ in dataset:
        pass
    return (time.process_time() - begin) / SAMPLES * 1000


def own(name: str, options: dict[str, Any]) -> Function:
    step = transform_class(name.partition(":")[0]).model_validate({"field": "image", **options})
    step = step.numbered(0) if isinstance(step, RandomTransform) else step
    return lambda x, key: step.apply({"image": x}, key)["image"]


def main() -> None:
    print(f"{'transform':24} {'infeed':>9} {'twin':>9} {'ratio':>6}  (CPU ms a picture)")
    for name in sys.argv[1:] or CASES:
        options, twin = CASES[name]
        sides = pictures(own(name, options)), pictures(twin)
        for side in sides:
            cpu_milliseconds(side)
        pairs = [tuple(map(cpu_milliseconds, sides)) for _ in range(PAIRS)]
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        mark = "" if ratio <= MAX_RATIO else f"  above {MAX_RATIO}"
        print(f"{name:24} {ours:9.3f} {theirs:9.3f} {ratio:6.2f}{mark}", flush=True)


if __name__ == "__main__":
    main()
