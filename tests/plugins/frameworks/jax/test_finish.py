"""Tests of the finish transforms in `jit`: NumPy's values, within one unit in the last place."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.shared.finish import finish as numpy_finish
from infeed.shared.spec import Cast, Erase, FinishTransform, MixPairs, Normalize, OneHot
from infeed.testing import FakeTransport

jax = pytest.importorskip("jax")

from infeed_frameworks.jax.finish import finish  # noqa: E402

BYTES = np.arange(256, dtype=np.uint8).repeat(3).reshape(-1, 1, 3)
FLOATS = np.array(
    [0.0, -0.0, 0.5, -1.5, 126.9, 127.5, -129.0, 300.0, 7e4, -3e9, 3e9, np.inf, -np.inf, np.nan],
    np.float32,
)
HALVES = np.array([0.0, 0.5, -1.5, 300.0, 65504.0, np.inf, -np.inf, np.nan], np.float16)
INTS = np.array([-(2**31), -32769, -129, -1, 0, 1, 127, 128, 255, 256, 65536, 2**31 - 1], np.int32)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def assert_same(actual: Any, expected: Any) -> None:
    if expected.dtype.name == "bfloat16":  # whose NaN NumPy does not know
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("transform", "x"),
    [
        (Normalize("x", scale=255.0), BYTES),
        (Normalize("x", scale=255.0, mean=MEAN, std=STD), BYTES),
        (Normalize("x", scale=255.0, std=STD), BYTES),
        (Normalize("x", scale=3.0, std=(7.0,)), BYTES),
        (Normalize("x", mean=MEAN), BYTES),
        (Normalize("x", mean=(123.68,), std=(58.4,)), BYTES),
        (Normalize("x", scale=255.0, mean=MEAN, std=STD, data_type="float16"), BYTES),
        (Normalize("x", scale=255.0, mean=MEAN, std=STD, data_type="bfloat16"), BYTES),
        (Normalize("x", scale=0.3), INTS),
        (Normalize("x", scale=0.3), FLOATS),
        *[
            (Cast("x", data_type), x)
            for x in (BYTES, FLOATS, INTS, HALVES, INTS > 0)
            for data_type in (
                *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"),
                *("float16", "float32", "bfloat16"),
            )
        ],
        *[
            (OneHot("x", depth, "float32", 0.9, 0.1), x)
            for depth in (1, 5, 300)
            for x in (BYTES, INTS, INTS.astype(np.int8))
        ],
        (OneHot("x", 3, "int8", 2.0, -1.0), INTS),
        (OneHot("x", 3, "bfloat16"), INTS),
    ],
)
def test_values_are_those_of_numpy(transform: FinishTransform, x: Any) -> None:
    mask = np.arange(len(x)) % 3 > 0
    (expected,) = numpy_finish({"x": x}, [transform], mask).values()
    run = jax.jit(partial(finish, transforms=[transform]))
    actual = np.asarray(run({"x": x}, mask=mask)["x"])
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    # On the CPU to the bit. On other devices, divisions may differ in the last place.
    assert_same(actual, expected)
    (expected,) = numpy_finish({"x": x}, [transform], np.ones(len(x), bool)).values()
    assert_same(np.asarray(run({"x": x}, mask=None)["x"]), expected)


def test_transforms_of_one_field_follow_each_other() -> None:
    transforms = [Cast("x", "float32"), Normalize("x", scale=255.0), Cast("x", "float16")]
    (expected,) = numpy_finish({"x": BYTES}, transforms, np.ones(len(BYTES), bool)).values()
    run = jax.jit(partial(finish, transforms=transforms))
    actual = np.asarray(run({"x": BYTES}, mask=None)["x"])
    np.testing.assert_array_max_ulp(actual, expected, maxulp=1)


def test_types_of_64_bits_are_there_where_jax_has_them() -> None:
    with jax.enable_x64(True):
        x = FLOATS.astype(np.float64) * 1e6
        for data_type in ("int64", "uint64", "float16", "float32", "int32"):
            transform = Cast("x", data_type)
            (expected,) = numpy_finish({"x": x}, [transform], np.ones(len(x), bool)).values()
            run = jax.jit(partial(finish, transforms=[transform]))
            actual = np.asarray(run({"x": jax.numpy.asarray(x)}, mask=None)["x"])
            np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("pair", [(), ("y_b", "lam")])
def test_pairs_are_mixed_as_by_numpy(pair: Any) -> None:
    rng = np.random.default_rng(0)
    draws = np.zeros((8, 6), np.float32)
    draws[0, :2] = 77, 77 / 256
    draws[2] = 0, 0.3, 1, 2, 4, 5
    draws[4, :2] = 256, 1
    fields = {
        "x": rng.integers(0, 256, (8, 5, 6, 3), np.uint8),
        "y": rng.random((8, 4), np.float32),
        "draws": draws,
    }
    mix = MixPairs("x", "y", "draws", *pair)
    run = jax.jit(partial(finish, transforms=[mix, Normalize("x", scale=255.0)]))
    for mask in (np.ones(8, bool), np.arange(8) != 3):
        expected = numpy_finish(fields, [mix, Normalize("x", scale=255.0)], mask)
        actual = run(fields, mask=mask)
        assert {*actual} == {*expected} == {"x", "y", *pair}
        for name in pair:
            np.testing.assert_array_equal(actual[name], expected[name], strict=True)
        np.testing.assert_array_equal(actual["x"], expected["x"])
        np.testing.assert_array_max_ulp(np.asarray(actual["y"]), expected["y"], maxulp=1)
        assert not (expected["x"][0] == fields["x"][0] / np.float32(255)).all()


@pytest.mark.parametrize("value", [None, 7])
def test_rectangles_are_covered_as_by_numpy(value: Any) -> None:
    rng = np.random.default_rng(0)
    draws = np.array([[1, 2, 4, 5, -7], [0, 0, 0, 0, 3], [0, 0, 5, 6, 2**31 - 1]], np.int32)
    fields = {"x": rng.integers(0, 256, (3, 5, 6, 3), np.uint8), "draws": draws}
    mask = np.ones(3, bool)
    transforms = [Erase("x", "draws", value)]
    expected = numpy_finish(fields, transforms, mask)["x"]
    found = jax.jit(partial(finish, transforms=transforms))(fields, mask=mask)
    assert {*found} == {"x"}
    np.testing.assert_array_equal(found["x"], expected, strict=True)
    assert (expected[1] == fields["x"][1]).all()
    assert (expected[2] != fields["x"][2]).any()


@pytest.mark.parametrize(("remainder", "pair"), [("drop", ()), ("pad", ("y_b", "lam"))])
def test_pairs_are_mixed_on_the_device(remainder: str, pair: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.integers(0, 256, (11, 5, 6, 3), np.uint8),
        "y": np.eye(11, dtype=np.float32),
        "draws": np.tile(np.float32([64, 0.25, 0, 0, 0, 0]), (11, 1)),
    }
    transforms = [MixPairs("x", "y", "draws", *pair)]

    def fake() -> Any:
        return FakeTransport(arrays, finish_transforms=transforms, batch_size=4)

    options: Any = {"epochs": 1, "remainder": remainder, "mask": "seen"}
    with (
        infeed.connect("fake", "fake", transport=fake(), epochs=1, remainder=remainder) as feed,
        infeed.jax.connect("fake", "fake", transport=fake(), **options) as batches,
    ):
        for expected, actual in zip(feed, batches, strict=True):
            assert {*actual} == {"x", "y", "seen", *pair}
            for name in expected:
                np.testing.assert_array_equal(actual[name], expected[name])
