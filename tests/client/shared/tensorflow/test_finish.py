"""Finish transforms in TensorFlow, inside a dataset: equal bits to `infeed.shared.finish`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples
from tests.harness.numbers import FLOATS, INTS, NUMBERS, extreme_values

from infeed.shared import finish as numpy_finish
from infeed.shared.spec import Cast, FinishTransform, Normalize, OneHot, numpy_dtype
from infeed.shared.tensorflow.finish import finish


def values(dtype: str) -> Any:
    """Returns values of the type's whole range, of shape [5, 7, 3]."""
    rng = np.random.default_rng(11)
    if dtype in INTS:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, (5, 7, 3), dtype, endpoint=True)
    return rng.uniform(-100, 100, (5, 7, 3)).astype(numpy_dtype(dtype))


def finish_in_dataset(
    fields: dict[str, Any], transforms: Sequence[FinishTransform], mask: Any
) -> Any:
    """Returns the batch of a dataset that TensorFlow has optimized."""

    # As for the dataset of a feed; conversion takes longer than the rest of the test.
    @tf.autograph.experimental.do_not_convert
    def finished(batch: dict[str, tf.Tensor], mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return finish(batch, transforms, mask)

    inputs = ({name: tf.constant(value) for name, value in fields.items()}, tf.constant(mask))
    dataset = tf.data.Dataset.from_tensors(inputs).map(finished, num_parallel_calls=2)
    return next(dataset.as_numpy_iterator())


def assert_equal_to_numpy(
    fields: dict[str, Any], transforms: Sequence[FinishTransform], mask: Any
) -> None:
    with np.errstate(all="ignore"):
        expected = numpy_finish.finish(fields, transforms, mask)
    actual = finish_in_dataset(fields, transforms, mask)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape)
        assert actual[name].tobytes() == array.tobytes(), name


HALF = np.array([True, False, True, False, False])
FULL = np.ones(5, np.bool_)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_casts(dtype: str) -> None:
    x = extreme_values(dtype)
    is_kept = np.arange(len(x)) % 3 > 0
    casts = [Cast(result, result) for result in NUMBERS]
    assert_equal_to_numpy(dict.fromkeys(NUMBERS, x), casts, is_kept)


OPERANDS: list[dict[str, Any]] = [
    {"scale": 255.0},
    {"mean": (0.5,), "std": (0.3,)},
    {"scale": 3.0, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    {"scale": 7.0, "std": (0.1, 0.7, 0.3)},
]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_normalize(dtype: str) -> None:
    """Each type of input with each type of result; the types of pixels with all operands."""
    is_pixel = dtype in ("uint8", "float32")
    cases = {
        f"{result} {number}": Normalize(f"{result} {number}", data_type=result, **operands)
        for index, result in enumerate(FLOATS)
        for number, operands in enumerate(OPERANDS)
        if is_pixel or number == index
    }
    assert_equal_to_numpy(dict.fromkeys(cases, values(dtype)), list(cases.values()), FULL)


@pytest.mark.parametrize("dtype", INTS)
def test_one_hot(dtype: str) -> None:
    limits = np.iinfo(dtype)
    labels = np.array([0, 3, 9, limits.max, limits.min], dtype)
    # The result type does not depend on the label type: one label type covers all of them.
    results = (*FLOATS, *INTS) if dtype == "int64" else ("float32",)
    cases = [OneHot(result, 10, result, 3.0, 1.0) for result in results]
    cases.append(OneHot("bool", 10, "bool"))
    shape, mask = ((5, 1), HALF) if dtype == "int64" else ((5,), FULL)
    assert_equal_to_numpy({case.field: labels.reshape(shape) for case in cases}, cases, mask)


def test_transforms_run_in_order_and_keep_other_fields() -> None:
    fields = {
        "image": values("uint8"),
        "label": np.array([0, 3, 9, 300, -1], np.int64),
        "name": np.array([b"a", b"", b"\xff", b"d", b"e"], object),
        "raw": values("int16"),
    }
    transforms: list[FinishTransform] = [
        Normalize("image", 255.0, (0.5,)),
        Cast("image", "float16"),
        Cast("label", "uint8"),
        OneHot("label", 10, off_value=0.5),
    ]
    inputs = {name: fields[name] for name in ("image", "label", "raw")}
    assert_equal_to_numpy(inputs, transforms, HALF)
    actual = finish_in_dataset(fields, transforms, HALF)
    assert actual["name"].tolist() == fields["name"].tolist()
    assert not actual["image"][~HALF].any()
    assert not actual["label"][~HALF].any()


@examples(15)
@given(
    scale=st.none() | st.floats(1e-3, 1e5) | st.floats(-1e5, -1e-3),
    # TensorFlow flushes subnormal results to 0; no mean of pixels is that small.
    mean=st.lists(st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3), min_size=0, max_size=1),
    std=st.lists(st.floats(1e-3, 1e3), min_size=0, max_size=1),
    dtype=st.sampled_from(FLOATS),
)
def test_normalize_for_all_operands(scale: Any, mean: Any, std: Any, dtype: Any) -> None:
    x = np.arange(256, dtype=np.uint8)
    transform = Normalize("x", scale, tuple(mean), tuple(std), dtype)
    assert_equal_to_numpy({"x": x}, [transform], np.ones(256, np.bool_))
