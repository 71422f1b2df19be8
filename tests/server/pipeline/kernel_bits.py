"""A program that prints a hash of what each transform makes, and one of other kernels."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.pipeline.picture_steps import fuse_decode_and_crop
from infeed_server.transforms import transform_class

SIZE = [97, 113]
METHODS = (
    *("bilinear", "nearest", "bicubic", "area"),
    *("lanczos3", "lanczos5", "mitchellcubic", "gaussian"),
)
FLOAT = ("convert_image_dtype", {"dtype": "float32"})
RANGE = {"lower": 0.3, "upper": 1.7}
RESIZED_CROP = ("random_resized_crop", {"size": SIZE})
JITTER = ("brightness", "contrast", "saturation", "hue")
NORMALIZED = {"scale": 255.0, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}

OF_IMAGES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "flips": [("random_flip_left_right", {}), ("random_flip_up_down", {})],
    "crops": [("random_crop", {"size": [50, 60]}), ("center_crop", {"size": [33, 31]})],
    "resized crop": [RESIZED_CROP],
    "brightness": [FLOAT, ("random_brightness", {"max_delta": 0.3})],
    "contrast": [FLOAT, ("random_contrast", RANGE)],
    "saturation": [FLOAT, ("random_saturation", RANGE)],
    "hue": [FLOAT, ("random_hue", {"max_delta": 0.4})],
    "jitter": [("random_color_jitter", dict.fromkeys(JITTER, 0.4))],
    "curves": [
        ("equalize", {}),
        ("autocontrast", {}),
        ("solarize", {}),
        ("posterize", {"bits": 5}),
    ],
    "sharpness": [("sharpness", {"factor": 1.7})],
    "blur": [("random_gaussian_blur", {"kernel": 23})],
    "warps": [("random_affine", {"degrees": 30, "interpolation": "bilinear"})],
    "perspective": [("random_perspective", {"probability": 1.0})],
    "policies": [("rand_augment", {"operations": 8}), ("trivial_augment", {}), ("aug_mix", {})],
    "erasing": [("random_erasing", {"value": None})],
    "normalize": [("normalize", NORMALIZED)],
    "bfloat16": [("normalize", {"scale": 255.0, "dtype": "bfloat16"})],
    **{
        f"resize {method} {antialias}": [
            (
                "resize",
                {"size": SIZE, "method": method, "antialias": antialias, "dtype": "float32"},
            )
        ]
        for method in METHODS
        for antialias in (False, True)
    },
}


def digest(value: Any, steps: list[tuple[str, dict[str, Any]]]) -> str:
    """Returns the hash of the results under four keys."""
    parsed = [
        (number, transform_class(name).model_validate({"field": "x", **options}))
        for number, (name, options) in enumerate(steps)
    ]
    fused = fuse_decode_and_crop(parsed)

    @tf.autograph.experimental.do_not_convert
    def run(key: tf.Tensor) -> tf.Tensor:
        sample = {"x": value}
        for _, step in fused:
            sample = step.apply(sample, key)
        return sample["x"]

    keys = tf.constant([[number, 7] for number in range(4)], tf.int64)
    results = tf.data.Dataset.from_tensor_slices(keys).map(run)
    return hashlib.sha256(b"".join(result.numpy().tobytes() for result in results)).hexdigest()


def main() -> None:
    small = np.random.default_rng(0).integers(0, 256, (12, 14, 3)).astype(np.float32)
    image = tf.saturate_cast(tf.image.resize(small, [223, 301], "bicubic"), tf.uint8)
    jpeg = tf.io.encode_jpeg(image)
    print("pixels", hashlib.sha256(image.numpy().tobytes()).hexdigest())
    print("decode", digest(jpeg, [("decode_image", {})]))
    print("decode and crop", digest(jpeg, [("decode_image", {}), RESIZED_CROP]))
    for name, steps in OF_IMAGES.items():
        print(name, digest(image, steps))
    print("one hot", digest(tf.constant(3), [("one_hot", {"depth": 10})]))
    print("number", digest(tf.constant("0.1"), [("string_to_number", {})]))
    print(other_kernels())


@tf.function
def convolve(matrix: tf.Tensor) -> tf.Tensor:
    image = tf.nn.softmax(tf.exp(matrix @ matrix / 9))[tf.newaxis, :, :, tf.newaxis]
    return tf.nn.conv2d(image, matrix[:7, :7, tf.newaxis, tf.newaxis], 1, "SAME")


def other_kernels() -> str:
    """Returns the hash of what a user's function could compute."""
    matrix = np.random.default_rng(1).standard_normal((300, 300)).astype(np.float32)
    return hashlib.sha256(convolve(tf.constant(matrix)).numpy().tobytes()).hexdigest()


if __name__ == "__main__":
    main()
