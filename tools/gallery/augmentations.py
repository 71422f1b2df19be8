"""The program `python -m tools.gallery.augmentations`: draws each augmentation of one
image, below its name, into docs/images/augmentations.webp."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw
from tools.gallery.data import images

from infeed.shared.finish import finish
from infeed_server.transforms import transform_class
from infeed_server.transforms.base import RandomTransform

FILE = Path(__file__).parents[2] / "docs" / "images" / "augmentations.webp"
SIDE, MARGIN, COLUMNS = 128, 16, 6

SHOWN: dict[str, dict[str, Any]] = {
    "invert": {},
    "solarize": {},
    "posterize": {"bits": 2},
    "autocontrast": {},
    "equalize": {},
    "grayscale": {},
    "sharpness": {"factor": 4.0},
    "random_color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2},
    "random_gaussian_blur": {"kernel": 15, "sigma": [3.0, 4.0]},
    "random_erasing": {"probability": 1.0},
    "random_rotation": {"degrees": [15, 40]},
    "random_affine": {"degrees": 20, "shear_x": [15, 30], "scale": [0.6, 0.8]},
    "random_perspective": {"probability": 1.0},
    "random_zoom_out": {"probability": 1.0},
    "rand_augment": {"magnitude": 20},
    "trivial_augment": {},
    "aug_mix": {"severity": 10},
}


def picture(number: int) -> Any:
    image = Image.open(io.BytesIO(images()[number][1]))
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def step(name: str, options: dict[str, Any]) -> Any:
    made = transform_class(name).model_validate({"field": "image", **options})
    return made.numbered(0) if isinstance(made, RandomTransform) else made


def mixed(options: dict[str, Any], key: tf.Tensor) -> Any:
    pair = {"image": np.stack([picture(0), picture(3)]), "label": np.eye(2, dtype=np.float32)}
    transform = step("mix_pairs", options)
    sample = {name: tf.constant(values[0]) for name, values in pair.items()}
    draws = transform.apply(sample, key)["image.mix_pairs-0"].numpy()
    fields = {**pair, "image.mix_pairs-0": np.stack([draws, draws])}
    return finish(fields, [transform.finish_transform()], np.ones(2, np.bool_))["image"][0]


def main() -> None:
    key = tf.constant([5, 1], tf.int64)
    shown = {"the image": picture(0)}
    for name, options in SHOWN.items():
        result = step(name, options).apply({"image": tf.constant(picture(0))}, key)["image"]
        shown[name] = np.asarray(Image.fromarray(result.numpy()).resize((SIDE, SIDE)))
    shown["mixup"] = mixed({"mixup": 8.0}, key)
    shown["cutmix"] = mixed({"cutmix": 8.0}, key)
    rows = -(-len(shown) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + 4), rows * (SIDE + MARGIN)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (name, pixels) in enumerate(shown.items()):
        x, y = number % COLUMNS * (SIDE + 4), number // COLUMNS * (SIDE + MARGIN)
        draw.text((x + 2, y + 2), name, "black")
        sheet.paste(Image.fromarray(pixels), (x, y + MARGIN))
    sheet.save(FILE, quality=70)


if __name__ == "__main__":
    main()
