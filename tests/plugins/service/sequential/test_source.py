"""The `dataset` source: field names, seeds, determinism, and errors in the user's code."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from infeed import ConfigError
from infeed_service.sequential.source import DatasetSource

Data = tf.data.Dataset


class Pair(NamedTuple):
    image: Any
    name: Any


def slices(*parts: Any) -> Data:
    return Data.from_tensor_slices(parts if len(parts) > 1 else parts[0])


def element_spec(dataset: Data, fields: list[str] | None = None) -> dict[str, tf.TensorSpec]:
    spec: dict[str, tf.TensorSpec] = (
        DatasetSource(dataset=lambda: dataset, fields=fields).make(0).element_spec
    )
    return spec


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """`module(code)` writes a module into the working directory and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names: list[str] = []

    def write(text: str) -> str:
        name = f"user_{tmp_path.name.replace('-', '_')}_{len(names)}"
        (tmp_path / f"{name}.py").write_text("import tensorflow as tf\n\n" + text)
        names.append(name)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("dataset", "fields", "names"),
    [
        (Data.range(3), None, ["features"]),
        (slices([1], [2]), None, ["features", "label"]),
        (slices([1], [2], [3.0]), None, ["features", "label", "sample_weight"]),
        (slices([1], [2], [3], [4]), list("abcd"), ["a", "b", "c", "d"]),
        (Data.range(3), ["x"], ["x"]),
        (slices({"b": [1], "a": [2]}), None, ["a", "b"]),
        (slices({"b": [1], "a": [2]}, [3]), None, ["a", "b", "label"]),
        (slices({"b": [1], "a": [2]}, [3]), ["inputs", "y"], ["a", "b", "y"]),
        (slices({"a": {"b": [1], "c": [2]}}), None, ["b", "c"]),
        (Data.from_tensors(Pair(1, b"x")), None, ["image", "name"]),
    ],
)
def test_field_names(dataset: Data, fields: list[str] | None, names: list[str]) -> None:
    assert sorted(element_spec(dataset, fields)) == sorted(names)


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (
            lambda: slices([1], [2], [3], [4]),
            None,
            "tuples of 4; name the parts",
        ),
        (lambda: slices([1], [2]), ["a"], "fields has 1 names for elements of 2 parts"),
        (lambda: slices({"a": [1]}), ["b"], "are dicts, which have names"),
        (lambda: slices({"label": [1]}, [2]), None, "both named 'label'"),
        (lambda: slices([1], ([2], [3])), None, "'label' of its elements is a tuple of 2"),
        (
            lambda: slices(tf.ragged.constant([[1], [2, 3]])),
            None,
            "'features' .* is a RaggedTensor",
        ),
        (
            lambda: slices(tf.sparse.from_dense([[1], [0]])),
            None,
            "'features' .* is a SparseTensor",
        ),
        (lambda: slices(np.zeros(2, np.complex64)), None, "is complex64; supported: bool"),
        (lambda: Data.range(4).window(2), None, "is a Dataset; return a dict"),
        (lambda: [1, 2], None, "returned a list, not a tf.data.Dataset"),
    ],
)
def test_unsupported_elements_are_refused(
    make: Callable[[], Any], fields: list[str] | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        DatasetSource(dataset=make, fields=fields).make(0)


def test_seed_is_set_for_the_function() -> None:
    def make() -> Data:
        return Data.range(50).shuffle(50).map(lambda x: x + tf.random.uniform((), 0, 9, tf.int64))

    source = DatasetSource(dataset=make)

    def elements(seed: int) -> list[int]:
        return [int(item["features"]) for item in source.make(seed)]

    assert elements(3) == elements(3)
    assert elements(3) != elements(4)
    assert len(elements((1 << 63) - 1)) == 50


def test_function_is_loaded_by_name(module: Callable[[str], str]) -> None:
    name = module("def make():\n    return tf.data.Dataset.range(5)\n\nDATA = 3\n")
    source = DatasetSource(dataset=f"{name}:make")
    assert source.make(0).cardinality() == 5
    assert source.label == f"{name}:make"
    assert len(source.identity()) == 64
    assert source.identity() != DatasetSource(dataset=f"{name}:make", fields=["x"]).identity()
    with pytest.raises(ConfigError, match=f"{name}:DATA is a int, not a function"):
        DatasetSource(dataset=f"{name}:DATA").make(0)
    with pytest.raises(ConfigError, match="has no 'mak'"):
        DatasetSource(dataset=f"{name}:mak").make(0)


def test_identity_follows_the_module_and_the_bound_values(module: Callable[[str], str]) -> None:
    name = module(
        "import functools\ntrain = functools.partial(tf.data.Dataset.from_tensors, [1])\n"
    )
    source = DatasetSource(dataset=f"{name}:train")
    before = source.identity()
    file = Path(str(sys.modules[name].__file__))
    file.write_text(file.read_text().replace("1", "2"))
    assert source.identity() != before
    functions = [functools.partial(tf.data.Dataset.range, count) for count in (2, 2, 3)]
    first, equal, third = (DatasetSource(dataset=function).identity() for function in functions)
    assert first == equal != third


def add_stateful_noise(x: Any) -> Any:
    return x + tf.random.uniform((), 0, 9, tf.int64)


def add_stateless_noise(x: Any) -> Any:
    return x + tf.random.stateless_uniform((), (1, 2), 0, 9, tf.int64)


def without_order(dataset: Data) -> Data:
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Data.range(5).shuffle(5).map(add_stateless_noise).batch(2).prefetch(1), True),
        (lambda: Data.range(5).map(lambda x: x, num_parallel_calls=2), True),
        (lambda: Data.range(5).map(add_stateful_noise).batch(2).prefetch(1), False),
        (lambda: Data.range(5).map(tf.function(add_stateful_noise)), False),
        (
            lambda: Data.range(5).map(
                lambda x: tf.cond(x > 1, lambda: add_stateful_noise(x), lambda: x)
            ),
            False,
        ),
        (lambda: without_order(Data.range(5)).batch(2), False),
        (lambda: Data.range(5).map(lambda x: x, num_parallel_calls=2, deterministic=False), False),
        (lambda: Data.range(5).interleave(lambda x: Data.range(x).map(add_stateful_noise)), False),
        (
            lambda: Data.range(5).interleave(
                lambda x: Data.range(x).map(lambda y: y, num_parallel_calls=2, deterministic=False)
            ),
            False,
        ),
        (lambda: Data.range(5).interleave(lambda x: Data.range(x).shuffle(3)), True),
        (lambda: Data.zip((Data.range(5), Data.range(5).map(add_stateful_noise))), False),
        (lambda: Data.range(5).map(lambda x: tf.py_function(int, [x], tf.int64)), True),
        (lambda: Data.range(5).map(lambda _: tf.timestamp()), False),
        (lambda: Data.range(5).map(lambda _: tf.raw_ops.NonDeterministicInts(shape=[1])), False),
    ],
)
def test_is_deterministic(make: Callable[[], Data], expected: bool) -> None:
    source = DatasetSource(dataset=make)
    assert source.is_deterministic(source.make(0)) is expected
    overridden = DatasetSource(dataset=make, deterministic=not expected)
    assert overridden.is_deterministic(overridden.make(0)) is not expected


def test_python_functions_live_as_long_as_their_iterators() -> None:
    class Rows:
        def __call__(self) -> Iterator[int]:
            yield from range(4)

    made: list[weakref.ref[Rows]] = []

    def from_rows() -> Data:
        rows = Rows()
        made.append(weakref.ref(rows))
        options = tf.data.Options()
        options.autotune.enabled = False  # else the iterator's end may wait for it
        spec = tf.TensorSpec([], tf.int64)
        dataset = Data.from_generator(rows, output_signature=spec).with_options(options)
        return dataset.map(lambda n: {"n": tf.ensure_shape(tf.py_function(abs, [n], tf.int64), [])})

    elements = iter(DatasetSource(dataset=from_rows).make(0).batch(2))
    gc.collect()
    assert [batch["n"].numpy().tolist() for batch in elements] == [[0, 1], [2, 3]]
    assert made[0]() is not None
    del elements
    gc.collect()
    assert made[0]() is None
