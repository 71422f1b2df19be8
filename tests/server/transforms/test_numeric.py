"""Elementwise transforms: the same bits from TensorFlow on the server and NumPy at the trainer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.harness.examples import examples
from tests.harness.numbers import FLOATS, NUMBERS, extreme_values

from infeed.shared import finish
from infeed.shared.errors import ConfigError
from infeed.shared.spec import numpy_dtype
from infeed_server.transforms import Cast, ConvertImageDtype, Normalize, OneHot, StringToNumber


def values(dtype: str) -> Any:
    """Returns [5, 7, 3] values over the whole range of the type."""
    rng = np.random.default_rng(11)
    if numpy_dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, (5, 7, 3), dtype, endpoint=True)
    return rng.uniform(-100, 100, (5, 7, 3)).astype(numpy_dtype(dtype))


def assert_same_bits(transform: Any, x: Any, run: Any) -> Any:
    """Returns the result, the same bits on the server, traced and eager, and at the trainer."""
    host = run(transform, {"x": x})["x"]
    eager = transform.apply({"x": tf.constant(x)}, tf.zeros([2], tf.int64))["x"].numpy()
    trainer = finish.apply(transform.finish_transform(), x)
    assert host.dtype == trainer.dtype
    assert host.shape == trainer.shape
    assert host.tobytes() == eager.tobytes() == trainer.tobytes()
    return trainer


RGB = {"scale": 255.0, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.mark.parametrize(
    ("options", "result"),
    # Each set of operands, and each type that they are converted to.
    [
        ({"scale": 255.0}, "float32"),
        ({"mean": 0.5, "std": [0.3]}, "float32"),
        ({"scale": 7.0, "std": [0.1, 0.7, 0.3]}, "float32"),
        *((RGB, result) for result in FLOATS),
    ],
    ids=str,
)
def test_normalize_equals_its_finish_transform(run: Any, options: Any, result: str) -> None:
    transform = Normalize.model_validate({"field": "x", "dtype": result, **options})
    for dtype in ("uint8", "int64", "float32"):
        got = assert_same_bits(transform, values(dtype), run)
        assert got.dtype == numpy_dtype(result)


@examples(25)
@given(
    scale=st.floats(1e-3, 1e5),
    # TensorFlow flushes subnormal results to 0; no mean of pixels is that small.
    mean=st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3),
    std=st.floats(1e-3, 1e3),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_normalize_equals_its_finish_for_any_operand(
    scale: float, mean: float, std: float, dtype: Any
) -> None:
    transform = Normalize(field="x", scale=scale, mean=(mean,), std=(std,), dtype=dtype)
    x = np.arange(256, dtype=np.uint8)
    host = transform.apply({"x": tf.constant(x)}, tf.zeros([2], tf.int64))["x"].numpy()
    trainer = finish.apply(transform.finish_transform(), x)  # type: ignore[arg-type]
    assert host.tobytes() == trainer.tobytes()


@pytest.mark.parametrize("shape", [[4, 4, 1], [4], [], [3, 4], [None, None, None]])
def test_normalize_with_wrong_operand_length_is_refused(spec: Any, shape: Any) -> None:
    transform = Normalize(field="x", mean=(1.0, 2.0, 3.0))
    with pytest.raises(ConfigError, match="mean has 3 numbers, but field 'x' holds uint8"):
        spec(transform, {"x": tf.TensorSpec(shape, tf.uint8)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least one of scale, mean and std is required"),
        ({"scale": 0}, "scale 0 is 0 in float32; it must be finite, and a divisor not 0"),
        ({"std": [1.0, 0.0]}, "std 0 is 0 in float32"),
        ({"scale": 1e-30, "dtype": "float16"}, "scale 1e-30 is 0 in float16"),
        ({"mean": 1e10, "dtype": "float16"}, "mean 1e.10 is inf in float16"),
    ],
    ids=str,
)
def test_normalize_with_invalid_options_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Normalize.model_validate({"field": "x", **options})


@pytest.mark.parametrize("dtype", NUMBERS)
def test_cast_equals_its_finish_transform(run: Any, dtype: str) -> None:
    x = extreme_values(dtype)
    casts = {result: Cast(field="x", dtype=result) for result in NUMBERS}  # type: ignore[arg-type]

    def apply(fields: Any, key: Any) -> Any:
        return {name: cast.apply(fields, key)[cast.field] for name, cast in casts.items()}

    sample = {"x": x}
    host = run(SimpleNamespace(apply=apply), sample)
    eager = apply({name: tf.constant(value) for name, value in sample.items()}, (0, 0))
    for result, cast in casts.items():
        trainer = finish.apply(cast.finish_transform(), sample[cast.field])
        assert host[result].dtype == trainer.dtype == numpy_dtype(result)
        bits = [item.tobytes() for item in (host[result], eager[result].numpy(), trainer)]
        assert bits[0] == bits[1] == bits[2], f"{dtype} to {result}"


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        *((dtype, "float32") for dtype in ("uint8", "int16", "int32", "int64", "uint64")),
        *(("int64", result) for result in ("uint8", "int64", "bool", "bfloat16")),
    ],
)
def test_one_hot_equals_its_finish_transform(run: Any, dtype: str, result: Any) -> None:
    transform = OneHot(field="x", depth=10, dtype=result)
    labels = np.array([0, 3, 9, 10, 255 if dtype == "uint8" else 1000], dtype)
    got = assert_same_bits(transform, labels, run)
    on, off = (tf.cast(value, result) for value in (1, 0))
    expected = tf.one_hot(labels.astype(np.int64), 10, on, off)
    np.testing.assert_array_equal(got, expected)


def test_one_hot_of_label_out_of_range_is_off_value(run: Any) -> None:
    transform = OneHot(field="x", depth=3, on_value=0.9, off_value=0.1)
    got = assert_same_bits(transform, np.array([-1, 3, 2**40, 1], np.int64), run)
    np.testing.assert_array_equal(got[:3], np.full((3, 3), 0.1, np.float32))
    np.testing.assert_array_equal(got[3], np.array([0.1, 0.9, 0.1], np.float32))


def test_one_hot_with_invalid_options_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"on_value 0.5 cannot be represented in int32"):
        OneHot(field="x", depth=3, dtype="int32", on_value=0.5)
    with pytest.raises(ValidationError, match=r"off_value -1.0 cannot be represented in uint8"):
        OneHot(field="x", depth=3, dtype="uint8", off_value=-1.0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_string_to_number(run: Any, dtype: Any) -> None:
    got = run(StringToNumber(field="x", dtype=dtype), {"x": [b"7", b"-12"]})["x"]
    np.testing.assert_array_equal(got, np.array([7, -12], dtype))
    assert got.dtype == dtype


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32"])
def test_convert_image_dtype_equals_tf_image(run: Any, image: Any, dtype: Any) -> None:
    transform = ConvertImageDtype(field="x", dtype=dtype)
    for x in (image, (image / 255).astype(np.float32)):
        expected = tf.image.convert_image_dtype(x, tf.as_dtype(dtype))
        np.testing.assert_array_equal(run(transform, {"x": x})["x"], expected)
    assert transform.finish_transform() is None


def test_convert_image_dtype_saturates(run: Any) -> None:
    x = np.tile(np.array([-1, 300, np.nan, np.inf, -np.inf, 0.5], np.float32), 7)
    got = run(ConvertImageDtype(field="x", dtype="uint8"), {"x": x})["x"]
    assert got.tolist() == [0, 255, 0, 255, 0, 127] * 7
    got = run(ConvertImageDtype(field="x", dtype="int32"), {"x": x})["x"]
    least, most = -(1 << 31), (1 << 31) - 1
    assert got.tolist() == [least, most, 0, most, least, 1 << 30] * 7
    signed = np.array([-128, -1, 127], np.int8)
    got = run(ConvertImageDtype(field="x", dtype="uint8"), {"x": signed})["x"]
    assert got.tolist() == [0, 0, 254]
