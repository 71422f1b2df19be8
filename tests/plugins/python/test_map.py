"""The `map` transform: calls, results, errors and identity of a user's function."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import TypeAdapter

from infeed.shared.errors import ConfigError, UserCodeError
from infeed_python.map import Map
from infeed_server.transforms import AnyTransform
from infeed_server.transforms.graph_nodes import random_nodes

SAMPLE = {"x": np.array([1.0, 2.0, 3.0], np.float32), "label": np.int64(4)}
SPEC = {"x": tf.TensorSpec([3], tf.float32), "label": tf.TensorSpec([], tf.int64)}


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], str]:
    """`module(code)` writes a module that can be imported and returns its name."""

    def write(code: str) -> str:
        name = f"user_{abs(hash((request.node.nodeid, code)))}"
        (tmp_path / f"{name}.py").write_text("import tensorflow as tf\n" + textwrap.dedent(code))
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    return write


def double(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {**sample, "x": sample["x"] * 2.0}


def noise(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"x": sample["x"] + tf.random.stateless_normal([3], key)}


def branch(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    if tf.reduce_sum(sample["x"]) > 5.0:  # noqa: SIM108 - AutoGraph should convert it
        x = sample["x"] + 1.0
    else:
        x = sample["x"]
    return {"x": x}


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"x": sample["x"] * self.factor}


def test_function_of_the_sample(run: Any) -> None:
    transform = Map(function=double)
    result = run(transform, SAMPLE)
    np.testing.assert_array_equal(result["x"], [2, 4, 6])
    assert result["label"] == 4
    assert not transform.random
    assert transform.fields() is None


def test_yaml_gives_the_function_alone() -> None:
    named = TypeAdapter(AnyTransform).validate_python({"map": "module:function"})
    assert named == Map(function="module:function")


def test_function_of_sample_and_key(run: Any) -> None:
    transform = Map(function=noise)
    assert transform.random
    first, again, other = (run(transform, SAMPLE, k)["x"] for k in [(1, 2), (1, 2), (1, 3)])
    expected = SAMPLE["x"] + tf.random.stateless_normal([3], tf.constant([1, 2], tf.int64))
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_if_on_a_tensor_works_as_in_dataset_map(run: Any) -> None:
    np.testing.assert_array_equal(run(Map(function=branch), SAMPLE)["x"], [2, 3, 4])


def second_has_default(sample: Any, training: bool = True) -> Any:
    assert training is True
    return sample


def key_has_default(sample: Any, key: Any = None) -> Any:
    return {"key": key}


def only_rest(*arguments: Any) -> Any:
    return arguments[0]


@pytest.mark.parametrize(
    ("function", "keyed"),
    [
        (double, False),
        (noise, True),
        (second_has_default, False),
        (key_has_default, True),
        (only_rest, False),
        (dict, False),
        (Scale(2.0), False),
        (tf.function(noise), True),
        (functools.partial(noise), True),
        (lambda sample, *, key=None: sample, False),
    ],
)
def test_key_is_passed_if_the_signature_has_it(run: Any, function: Any, keyed: bool) -> None:
    transform = Map(function=function)
    assert transform.random is keyed
    assert run(transform, SAMPLE)


def test_keyed_overrides_the_signature(run: Any) -> None:
    np.testing.assert_array_equal(
        run(Map(function=lambda *both: {"key": both[1]}, keyed=True), SAMPLE, (8, 9))["key"], [8, 9]
    )
    assert not Map(function=noise, keyed=False).random


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda s: (s["x"], s["label"]), "returned a tuple; it must"),
        (lambda s: s["x"], "Tensor; it must return a dict"),
        (lambda s: None, "returned a NoneType"),
        (lambda s: {"x": None}, "a dict whose 'x' is a NoneType"),
        (lambda s: {"x": object()}, "a dict whose 'x' is a object"),
        (lambda s: {1: s["x"]}, "a dict whose 1 is a "),
        (
            lambda s: {"x": tf.RaggedTensor.from_row_lengths(s["x"], [1, 2])},
            "a RaggedTensor",
        ),
    ],
)
def test_result_that_is_not_a_dict_of_tensors_is_refused(
    spec: Any, returned: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(Map(function=tf.autograph.experimental.do_not_convert(returned)), SPEC)


FAILING = """
    def outer(sample):
        return {"x": inner(sample["x"])}

    def inner(x):
        raise ValueError("the cat is out")

    def shapes(sample):
        return {"x": tf.reshape(sample["x"], [7, 7])}

    def missing(sample):
        return {"x": sample["y"]}

"""


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("name", "lines", "last"),
    [
        ("outer", [4, 7], "ValueError: the cat is out"),
        ("shapes", [10], r"\w+Error: .*[Rr]eshape"),
        ("missing", [13], "KeyError: 'y'"),
    ],
)
def test_error_has_the_users_traceback(
    module: Any, key: Any, eager: bool, name: str, lines: list[int], last: str
) -> None:
    user = module(FAILING)
    transform = Map(function=f"{user}:{name}")
    sample = {field: tf.constant(value) for field, value in SAMPLE.items()}
    apply = transform.apply if eager else tf.function(transform.apply, autograph=False)
    with pytest.raises(UserCodeError) as caught:
        apply(sample, key)
    head, title, *frames, end = caught.value.message.splitlines()
    assert head == f"map: {user}:{name} raised"
    assert title == "Traceback (most recent call last):"
    locations = [frame for frame in frames if frame.startswith('  File "')]
    assert all(f'{user}.py"' in location for location in locations)
    assert [int(location.split("line ")[1].split(",")[0]) for location in locations] == lines
    assert re.search(last, end)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_here:f", "map: no module 'no_such_module_here'"),
        ("json:nothing", "map: 'json' has no 'nothing'; it has: .*loads"),
        ("json:decoder", "map: json:decoder is a module, not a function"),
    ],
)
def test_unknown_function_is_refused(spec: Any, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(Map(function=name), SPEC)


def draw_uniform(sample: Any) -> Any:
    return {"x": sample["x"] + tf.random.uniform([3])}


def draw_in_branch(sample: Any) -> Any:
    draw = lambda: tf.random.normal([3])  # noqa: E731
    return {"x": tf.cond(sample["label"] > 1, draw, lambda: sample["x"])}


GENERATOR = tf.random.Generator.from_seed(1)


def draw_from_generator(sample: Any) -> Any:
    return {"x": sample["x"] + GENERATOR.normal([3])}


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (draw_uniform, "RandomUniform"),
        (draw_in_branch, "RandomStandardNormal"),
        (draw_from_generator, "RngReadAndSkip|StatefulStandardNormal"),
    ],
)
def test_random_ops_with_state_are_refused(spec: Any, function: Any, operation: str) -> None:
    message = rf"draws random numbers.*\(({operation})\).*tf.random.stateless_"
    with pytest.raises(ConfigError, match=message):
        spec(Map(function=function), SPEC)
    traced = tf.function(function).get_concrete_function(SPEC)
    assert any(f"({name})" in " ".join(random_nodes(traced.graph)) for name in operation.split("|"))


def test_random_ops_with_the_key_are_accepted(spec: Any) -> None:
    assert spec(Map(function=noise), SPEC)["x"].shape == [3]
    traced = tf.function(noise).get_concrete_function(SPEC, tf.TensorSpec([2], tf.int64))
    assert not random_nodes(traced.graph)


def test_identity_follows_the_module_that_the_function_is_loaded_from(module: Any) -> None:
    text = "import functools, operator\nf = functools.partial(operator.or_, {'x': 1})\n"
    names = module(text), module(text), module(text.replace("1", "2"))
    one, same, other = (Map(function=f"{name}:f", keyed=False).identity() for name in names)
    assert one == same != other
