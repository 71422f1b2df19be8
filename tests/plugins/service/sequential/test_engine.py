"""Tests of the sequential engine through a real server, over a user's `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed_server import Pipeline
from infeed_server.pipeline.load import parse

N = 10

Make = Callable[[], tf.data.Dataset]


def numbers() -> tf.data.Dataset:
    """{x: i, square: i²} for i < N, of known length."""
    return tf.data.Dataset.range(N).map(lambda i: {"x": i, "square": i * i})


def unknown_length() -> tf.data.Dataset:
    """The same from a Python generator, of unknown length."""

    def rows() -> Iterator[dict[str, int]]:
        for i in range(N):
            yield {"x": i, "square": i * i}

    signature = {"x": tf.TensorSpec([], tf.int64), "square": tf.TensorSpec([], tf.int64)}
    return tf.data.Dataset.from_generator(rows, output_signature=signature)


def batches() -> tf.data.Dataset:
    """Batches of 4, the last one of 2."""
    return numbers().batch(4)


def unknown_length_batches() -> tf.data.Dataset:
    """The same, of unknown length."""
    return unknown_length().batch(4)


def shuffled() -> tf.data.Dataset:
    return numbers().shuffle(N)


def unordered() -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = False
    return numbers().with_options(options)


def pipeline(make: Make, **options: Any) -> Pipeline:
    return parse({"source": {"dataset": make}, "batch": {"size": 4}, **options})


def batched_pipeline(make: Make) -> Pipeline:
    return parse({"source": {"dataset": make}})


def read(server: Any, name: str = "n", **options: Any) -> list[infeed.Batch]:
    with infeed.connect(str(server.address), name, **options) as feed:
        return list(feed)


def values(batches: list[infeed.Batch], field: str = "x") -> list[int]:
    """Returns the values of a field in the filled slots of all batches."""
    return [int(value) for batch in batches for value in batch[field][batch.mask]]


def equal(one: infeed.Batch, other: infeed.Batch) -> bool:
    return (one.start, one.epoch) == (other.start, other.epoch) and all(
        np.array_equal(a, b)
        for a, b in [
            (one.sample_ids, other.sample_ids),
            (one.mask, other.mask),
            *((one[name], other[name]) for name in one),
        ]
    )


@pytest.fixture(scope="module")
def server(shared: Any) -> Any:
    """A server of the datasets of this module, by their names, that all tests may read."""
    return shared(
        {
            **{
                make.__name__: pipeline(make)
                for make in (numbers, unknown_length, shuffled, unordered)
            },
            **{make.__name__: batched_pipeline(make) for make in (batches, unknown_length_batches)},
        }
    )


@pytest.mark.parametrize("make", [numbers, unknown_length])
@pytest.mark.parametrize("epochs", [1, 2])
def test_remainder_is_dropped_or_padded(server: Any, make: Make, epochs: int) -> None:
    name = make.__name__
    expected = [i for _ in range(epochs) for i in range(N)]
    dropped = read(server, name, epochs=epochs)
    assert values(dropped) == expected[: epochs * N // 4 * 4]
    assert all(batch.mask.all() for batch in dropped)

    padded = read(server, name, epochs=epochs, remainder="pad")
    assert values(padded) == expected
    assert values(padded, "square") == [i * i for i in expected]
    assert [batch.start for batch in padded] == list(range(0, epochs * N, 4))
    assert [batch.epoch for batch in padded] == [start // N for start in range(0, epochs * N, 4)]
    for batch in padded:
        assert batch["x"].shape == batch["square"].shape == (4,)
        assert np.array_equal(batch.sample_ids[batch.mask], batch["x"][batch.mask])
        assert (batch.sample_ids[~batch.mask] == -1).all()
        assert (batch["square"][~batch.mask] == 0).all()
    assert sum(int((~batch.mask).sum()) for batch in padded) == -len(expected) % 4


@pytest.mark.parametrize("make", [batches, unknown_length_batches])
def test_batched_dataset_keeps_its_elements(server: Any, make: Make) -> None:
    with infeed.connect(str(server.address), make.__name__, epochs=2) as feed:
        assert feed.batch_size == 4
        assert feed.may_mask
        received = list(feed)
    # A position is an element, and an epoch has three.
    assert [batch.start for batch in received] == list(range(6))
    assert [batch.epoch for batch in received] == [0, 0, 0, 1, 1, 1]
    assert values(received) == [*range(N), *range(N)]
    for batch in received[2::3]:
        assert batch.sample_ids.tolist() == [8, 9, -1, -1]
        assert batch.mask.tolist() == [True, True, False, False]
        assert batch["square"].tolist() == [64, 81, 0, 0]
    assert received[1].sample_ids.tolist() == received[4].sample_ids.tolist() == [4, 5, 6, 7]


RESUMED: dict[str, Any] = {"epochs": 2, "remainder": "pad"}


@pytest.fixture(scope="module")
def second_server(shared: Any) -> Any:
    """A second server, which has read nothing."""
    return shared(
        {
            **{make.__name__: pipeline(make) for make in (shuffled, unknown_length)},
            **{make.__name__: batched_pipeline(make) for make in (batches, unknown_length_batches)},
        }
    )


@pytest.mark.parametrize(
    ("name", "size"),
    # Batches of 6: one spans the end of the first epoch, and one is partial.
    [("shuffled", 6), ("unknown_length", 6), ("batches", None), ("unknown_length_batches", None)],
)
def test_resumed_feed_has_the_same_rest_at_every_step(
    server: Any, second_server: Any, name: str, size: int | None
) -> None:
    options = RESUMED if size is None else {**RESUMED, "batch_size": size}
    with infeed.connect(str(server.address), name, **options) as feed:
        states, received = [feed.state()], []
        for batch in feed:
            received.append(batch)
            states.append(feed.state())
    for step, state in reversed(list(enumerate(states))):
        for address in (server, second_server):
            rest = read(address, name, state=state, **options)
            assert len(rest) == len(received) - step
            assert all(equal(one, two) for one, two in zip(rest, received[step:], strict=True))


@pytest.mark.parametrize("batched", [False, True])
def test_finish_transforms_follow_a_dataset(serve: Any, batched: bool) -> None:
    def pictures() -> tf.data.Dataset:
        images = np.arange(N * 12, dtype=np.uint8).reshape(N, 2, 2, 3)
        dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(N) % 3))
        return dataset.batch(4) if batched else dataset

    transforms = [
        {"normalize": {"field": "features", "scale": 255.0, "mean": [0.1, 0.2, 0.3]}},
        {"one_hot": {"field": "label", "depth": 3}},
    ]
    options = {} if batched else {"batch": {"size": 4}}
    definition = {"source": {"dataset": pictures}, "transforms": transforms, **options}
    server = serve({"n": parse(definition)})
    runs = [
        read(server, epochs=1, remainder="pad", finish=finish) for finish in ("trainer", "server")
    ]
    assert [len(run) for run in runs] == [3, 3]
    assert all(equal(one, other) for one, other in zip(*runs, strict=True))
    first, last = runs[0][0], runs[0][-1]
    assert first["features"].dtype == first["label"].dtype == np.float32
    assert first["label"].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert np.allclose(first["features"][1, 0, 0], np.array([12, 13, 14]) / 255 - [0.1, 0.2, 0.3])
    # Empty slots are zeros, even where the transform of zero is another value.
    assert not last["features"][2:].any()
    assert not last["label"][2:].any()


def test_empty_dataset_of_unknown_length_is_not_ready(serve: Any) -> None:
    def none() -> tf.data.Dataset:
        return numbers().filter(lambda _: False)

    server = serve({"n": pipeline(none)})
    assert not server.health.overall.ready
    assert "is empty" in server.health.overall.reason
    for _ in range(2):
        feed = infeed.connect(str(server.address), "n")
        with feed, pytest.raises(infeed.SourceError, match=r"none is empty$"):
            feed.next(60)
