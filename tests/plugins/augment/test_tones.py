"""Tone curves: the bits of Pillow's ImageOps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import ImageOps
from tests.plugins.augment.twins import by_pillow, pictures

from infeed.shared.errors import ConfigError
from infeed_augment.tones import Autocontrast, Equalize, Invert, Posterize, Solarize

CASES = [
    (Invert(field="x"), ImageOps.invert, ()),
    *((Solarize(field="x", threshold=n), ImageOps.solarize, (n,)) for n in (0, 1, 128, 255, 256)),
    *((Posterize(field="x", bits=n), ImageOps.posterize, (n,)) for n in (1, 4, 8)),
    (Autocontrast(field="x"), ImageOps.autocontrast, ()),
    (Equalize(field="x"), ImageOps.equalize, ()),
]


@pytest.mark.parametrize(("transform", "twin", "options"), CASES)
def test_curves_have_the_bits_of_pillow(
    run_eagerly: Any, transform: Any, twin: Any, options: Any
) -> None:
    for pixels in pictures():
        result = run_eagerly(transform, {"x": pixels})["x"]
        np.testing.assert_array_equal(result, by_pillow(twin, pixels, *options), str(pixels.shape))


def test_shape_is_kept_and_other_pictures_are_refused(spec: Any) -> None:
    for transform in (Equalize(field="x"), Autocontrast(field="x"), Solarize(field="x")):
        result = spec(transform, {"x": tf.TensorSpec([None, 8, 3], tf.uint8)})["x"]
        assert result == tf.TensorSpec([None, 8, 3], tf.uint8)
    with pytest.raises(ConfigError, match=r"invert: field 'x' holds float32; supported: uint8"):
        spec(Invert(field="x"), {"x": tf.TensorSpec([8, 8, 3], tf.float32)})
    with pytest.raises(ConfigError, match=r"uint8\[8, 8, 4\]; 1 or 3 channels are required"):
        spec(Invert(field="x"), {"x": tf.TensorSpec([8, 8, 4], tf.uint8)})
