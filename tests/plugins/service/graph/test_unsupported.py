"""Tests of the checks for pipelines that the workers cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import parse
from infeed_service.graph import plan_data_service

Fields = dict[str, tf.Tensor]


def through_python(sample: Fields) -> Fields:
    return {"x": tf.ensure_shape(tf.py_function(int, [sample["x"]], tf.int64), [])}


def through_numpy(sample: Fields) -> Fields:
    doubled = tf.numpy_function(lambda x: x * 2, [sample["x"]], tf.int64, stateful=False)
    return {"x": tf.ensure_shape(doubled, [])}


def in_a_branch(sample: Fields) -> Fields:
    x = sample["x"]
    return tf.cond(x > 3, lambda: through_python(sample), lambda: {"x": x})


def in_a_loop(sample: Fields) -> Fields:
    inner = tf.data.Dataset.range(3).map(lambda i: through_numpy({"x": i})["x"])
    return {"x": inner.reduce(sample["x"], lambda a, b: a + b)}


@pytest.mark.parametrize("function", [through_python, through_numpy, in_a_branch, in_a_loop])
def test_python_in_a_map_is_refused(function: Callable[..., Any]) -> None:
    cast = {"cast": {"field": "x", "dtype": "int64"}}
    definition = {
        "source": {"arrays": {"x": np.arange(10, dtype=np.int32)}},
        "transforms": [cast, {"map": {"function": function}}],
        "batch": {"size": 2},
    }
    expected = (
        rf"^transforms\[1\]\.map: \S*:{function.__name__} \(.*PyFunc.*\) calls Python for each "
        r"sample, .*; write it with TensorFlow operations, or use --engine local$"
    )
    with pytest.raises(ConfigError, match=expected):
        plan_data_service("one", parse(definition))


def test_function_in_python_is_refused() -> None:
    definition = {
        "source": {"arrays": {"x": np.arange(10, dtype=np.int32)}},
        "transforms": [{"map": {"function": through_numpy, "python": True}}],
        "batch": {"size": 2},
    }
    with pytest.raises(ConfigError, match=r"^transforms\[0\]\.map: python: true calls Python"):
        plan_data_service("p", parse(definition))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("add", [{"arrays": {"x": np.arange(5)}}]),
        ("remove", [1]),
        ("skip", [[1, 2]]),
        ("shuffle", {"order": "stable"}),
    ],
)
def test_orders_of_the_local_engine_are_refused(option: str, value: Any) -> None:
    definition = {"source": {"arrays": {"x": np.arange(10)}}, "batch": 2, option: value}
    with pytest.raises(ConfigError, match=rf"^{option}\S*: the tf.data service does not .* local$"):
        plan_data_service("p", parse(definition))


@pytest.mark.parametrize(
    "source",
    [{"python": lambda: [1, 2], "identity": "v1"}, {"webdataset": "a.tar"}, {"tokens": "a.idx"}],
    ids=["python", "webdataset", "tokens"],
)
def test_source_in_python_is_refused(source: dict[str, Any]) -> None:
    definition = {"source": source, "batch": {"size": 2}}
    kind = next(iter(source))
    with pytest.raises(
        ConfigError, match=rf"source\.{kind}: Python in the server .*--engine local"
    ):
        plan_data_service("p", parse(definition))


def generate() -> Iterator[int]:
    yield 1


def generated() -> tf.data.Dataset:
    spec = tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def load(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(int, [x], tf.int64), [])


@pytest.mark.parametrize(
    "function",
    [
        generated,
        lambda: tf.data.Dataset.range(9).map(load, 2).repeat(2),
        lambda: tf.data.Dataset.range(9).interleave(lambda _: generated()),
        lambda: tf.data.Dataset.zip(tf.data.Dataset.range(9), generated()),
    ],
)
def test_python_in_a_user_dataset_is_refused(function: Callable[..., Any]) -> None:
    expected = r"^source\.dataset: \S* \(.*Func.* in .*\) calls Python for each sample"
    with pytest.raises(ConfigError, match=expected):
        plan_data_service("one", parse({"source": {"dataset": function}, "batch": {"size": 1}}))


def test_arrays_over_the_limit_are_refused() -> None:
    arrays = {"x": np.zeros((100, 1 << 14))}
    definition = parse({"source": {"arrays": arrays}, "batch": {"size": 2}})
    plan_data_service("one", definition, limit_bytes=13 << 20)
    expected = (
        r"^source\.arrays: the graph .* would hold 12 MiB of it, over the limit of 12 MiB; "
        r"write it as TFRecords, .*, or use --engine local$"
    )
    with pytest.raises(ConfigError, match=expected):
        plan_data_service("one", definition, limit_bytes=12 << 20)
