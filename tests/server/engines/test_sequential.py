"""Pipelines over a user's own `tf.data.Dataset`, through a real server."""

from __future__ import annotations

import contextlib
import threading
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
    """{x: i, square: i²} for i < N; the length is known."""
    return tf.data.Dataset.range(N).map(lambda i: {"x": i, "square": i * i})


def counted() -> tf.data.Dataset:
    """The same from a Python generator, whose end only reading finds."""

    def rows() -> Iterator[dict[str, int]]:
        for i in range(N):
            yield {"x": i, "square": i * i}

    signature = {"x": tf.TensorSpec([], tf.int64), "square": tf.TensorSpec([], tf.int64)}
    return tf.data.Dataset.from_generator(rows, output_signature=signature)


def batches() -> tf.data.Dataset:
    """Elements that are batches of 4 already, the last one of 2."""
    return numbers().batch(4)


def open_batches() -> tf.data.Dataset:
    """The same without a length."""
    return counted().batch(4)


def shuffled() -> tf.data.Dataset:
    return numbers().shuffle(N)


def unordered() -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = False
    return numbers().with_options(options)


def pipeline(make: Make, **options: Any) -> Pipeline:
    return parse({"source": {"dataset": make}, "batch": {"size": 4}, **options})


def whole(make: Make) -> Pipeline:
    return parse({"source": {"dataset": make}})


def read(server: Any, name: str = "n", **options: Any) -> list[infeed.Batch]:
    with infeed.connect(str(server.address), name, **options) as feed:
        return list(feed)


def kept(batches: list[infeed.Batch], field: str = "x") -> list[int]:
    """The values of a field in the slots that hold a sample, batch after batch."""
    return [int(value) for batch in batches for value in batch[field][batch.mask]]


def same(one: infeed.Batch, other: infeed.Batch) -> bool:
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
    """A server of the datasets of this module that any test may read, by their names."""
    return shared(
        {
            **{make.__name__: pipeline(make) for make in (numbers, counted, shuffled, unordered)},
            **{make.__name__: whole(make) for make in (batches, open_batches)},
        }
    )


@pytest.mark.parametrize("make", [numbers, counted])
@pytest.mark.parametrize("epochs", [1, 2])
def test_remainder_drop_and_pad(server: Any, make: Make, epochs: int) -> None:
    name = make.__name__
    everything = [i for _ in range(epochs) for i in range(N)]
    dropped = read(server, name, epochs=epochs)
    fits = epochs * N // 4 * 4
    assert kept(dropped) == everything[:fits]
    assert all(batch.mask.all() for batch in dropped)

    padded = read(server, name, epochs=epochs, remainder="pad")
    assert kept(padded) == everything
    assert kept(padded, "square") == [i * i for i in everything]
    assert [batch.start for batch in padded] == list(range(0, epochs * N, 4))
    assert [batch.epoch for batch in padded] == [start // N for start in range(0, epochs * N, 4)]
    for batch in padded:
        assert batch["x"].shape == batch["square"].shape == (4,)
        assert np.array_equal(batch.sample_ids[batch.mask], batch["x"][batch.mask])
        assert (batch.sample_ids[~batch.mask] == -1).all()
        assert (batch["square"][~batch.mask] == 0).all()
    assert sum(int((~batch.mask).sum()) for batch in padded) == -len(everything) % 4


@pytest.mark.parametrize("make", [numbers, counted])
def test_endless_feeds_go_on_over_epochs(server: Any, make: Make) -> None:
    with infeed.connect(str(server.address), make.__name__) as feed:
        assert feed.spec.sample_count == (N if make is numbers else None)
        assert feed.steps is None
        got = [feed.next(60) for _ in range(12)]
    assert kept(got) == [i % N for i in range(48)]
    assert [batch.epoch for batch in got] == [batch.start // N for batch in got]
    # The third batch has the last two samples of epoch 0 and the first two of epoch 1.
    assert got[2].sample_ids.tolist() == [8, 9, 0, 1]


def test_a_batch_size_of_the_trainers_own(server: Any) -> None:
    padded = read(server, "numbers", epochs=1, batch_size=7, remainder="pad")
    assert kept(padded) == list(range(N))
    assert kept(read(server, "numbers", epochs=1, batch_size=N)) == list(range(N))


@pytest.mark.parametrize("make", [batches, open_batches])
def test_elements_that_are_batches_already(server: Any, make: Make) -> None:
    with infeed.connect(str(server.address), make.__name__, epochs=2) as feed:
        assert feed.batch_size == 4
        assert feed.may_mask
        got = list(feed)
    # A position is an element here, and an epoch has three.
    assert [batch.start for batch in got] == list(range(6))
    assert [batch.epoch for batch in got] == [0, 0, 0, 1, 1, 1]
    assert kept(got) == [*range(N), *range(N)]
    for batch in got[2::3]:
        assert batch.sample_ids.tolist() == [8, 9, -1, -1]
        assert batch.mask.tolist() == [True, True, False, False]
        assert batch["square"].tolist() == [64, 81, 0, 0]
    assert got[1].sample_ids.tolist() == got[4].sample_ids.tolist() == [4, 5, 6, 7]


def test_the_batches_of_a_dataset_keep_their_size(server: Any) -> None:
    with pytest.raises(infeed.InvalidRequestError, match="batches of 4"):
        infeed.connect(str(server.address), "batches", batch_size=8)


@pytest.mark.parametrize("batch_size", [2, 3, 4])
def test_ranks_share_a_dataset_of_known_length(server: Any, batch_size: int) -> None:
    ranks = [
        read(
            server,
            "numbers",
            shard=infeed.Shard(rank, 2),
            batch_size=batch_size,
            epochs=1,
            remainder="pad",
        )
        for rank in range(2)
    ]
    # As many steps on every rank, and every sample on one.
    assert len(ranks[0]) == len(ranks[1]) == -(-N // (2 * batch_size))
    assert sorted(kept(ranks[0]) + kept(ranks[1])) == list(range(N))


def test_a_rank_behind_the_end_gets_padding(server: Any) -> None:
    options: dict[str, Any] = {"batch_size": 8, "epochs": 1, "remainder": "pad"}
    ranks = [read(server, "numbers", shard=infeed.Shard(rank, 3), **options) for rank in range(3)]
    assert [len(rank) for rank in ranks] == [1, 1, 1]
    assert [kept(rank) for rank in ranks] == [list(range(8)), [8, 9], []]
    assert ranks[2][0].sample_ids.tolist() == [-1] * 8
    assert not ranks[2][0]["x"].any()


def test_ranks_share_a_dataset_of_unknown_length(server: Any) -> None:
    options: dict[str, Any] = {"batch_size": 2, "epochs": 1, "remainder": "pad"}
    ranks = [read(server, "counted", shard=infeed.Shard(rank, 2), **options) for rank in range(2)]
    assert kept(ranks[0]) == [0, 1, 4, 5, 8, 9]
    assert kept(ranks[1]) == [2, 3, 6, 7]


RESUMED: dict[str, Any] = {"epochs": 2, "remainder": "pad"}


@pytest.fixture(scope="module")
def fresh(shared: Any) -> Any:
    """Another server of the datasets of `test_resuming_at_every_step_gives_the_same_rest`."""
    return shared(
        {
            **{make.__name__: pipeline(make) for make in (shuffled, counted)},
            **{make.__name__: whole(make) for make in (batches, open_batches)},
        }
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [("shuffled", 3), ("counted", 3), ("batches", None), ("open_batches", None)],
)
def test_resuming_at_every_step_gives_the_same_rest(
    server: Any, fresh: Any, name: str, size: int | None
) -> None:
    options = RESUMED if size is None else {**RESUMED, "batch_size": size}
    with infeed.connect(str(server.address), name, **options) as feed:
        states, got = [feed.state()], []
        for batch in feed:
            got.append(batch)
            states.append(feed.state())
    # Another server has read nothing yet, and goes to the position by itself.
    for step, state in reversed(list(enumerate(states))):
        for address in (server, fresh):
            rest = read(address, name, state=state, **options)
            assert len(rest) == len(got) - step
            assert all(same(one, two) for one, two in zip(rest, got[step:], strict=True))


def test_the_seed_orders_an_unseeded_shuffle(serve: Any, server: Any) -> None:
    again = server
    server = serve(
        {"n": pipeline(shuffled, batch={"size": 5}, shuffle={"mode": "none", "seed": 1})}
    )
    first = kept(read(server, epochs=2))
    assert kept(read(server, epochs=2, seed=1)) == first
    assert sorted(first[:N]) == sorted(first[N:]) == list(range(N))
    assert first[:N] != first[N:]
    other = kept(read(server, epochs=2, seed=2))
    assert sorted(other) == sorted(first)
    assert other != first
    # Another server, with nothing in its windows, has the same order.
    assert kept(read(again, "shuffled", epochs=2, seed=1, batch_size=5)) == first


def test_a_dataset_without_an_order_says_so(server: Any) -> None:
    (spec,) = (spec for spec in server.specs() if spec.startswith("unordered: "))
    assert "none order, at most once delivery, none resume" in spec
    name = "unordered"
    with infeed.connect(str(server.address), name, epochs=1, remainder="pad") as feed:
        guarantee = feed.guarantee
        assert (guarantee.order, guarantee.delivery, guarantee.resume) == (
            "none",
            "at_most_once",
            "none",
        )
        start = feed.state()
        assert sorted(kept(list(feed))) == list(range(N))
        state = feed.state()
    assert len(read(server, name, epochs=1, state=start)) == 2
    with pytest.raises(infeed.CursorError, match=r"promises no order.* stands at 10"):
        infeed.connect(str(server.address), name, epochs=2, state=state)


def test_the_server_too_refuses_to_go_on_in_no_order() -> None:
    from infeed_server.engines.base import Request, Trainer
    from infeed_server.engines.build import build
    from infeed_server.engines.monitor import Silent

    engine = build("n", pipeline(unordered), Silent())
    try:
        session = engine.open(4, 0, Trainer())
        with pytest.raises(infeed.CursorError, match="cannot continue at position 1000000"):
            session.submit(Request(0, 1_000_000, 4, 4)).result(60)
        session.close()
    finally:
        engine.close()


def test_deterministic_is_the_users_word(serve: Any) -> None:
    source = {"dataset": unordered, "deterministic": True}
    server = serve({"n": parse({"source": source, "batch": {"size": 4}})})
    assert "deterministic order, exactly once delivery, replay resume" in server.specs()[0]


@pytest.mark.parametrize("batched", [False, True])
def test_finish_transforms_after_a_dataset(serve: Any, batched: bool) -> None:
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
    assert all(same(one, other) for one, other in zip(*runs, strict=True))
    first, last = runs[0][0], runs[0][-1]
    assert first["features"].dtype == first["label"].dtype == np.float32
    assert first["label"].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert np.allclose(first["features"][1, 0, 0], np.array([12, 13, 14]) / 255 - [0.1, 0.2, 0.3])
    # Empty slots are zeros, also where zero would have become something else.
    assert not last["features"][2:].any()
    assert not last["label"][2:].any()


def failing_at_5() -> tf.data.Dataset:
    def check(i: tf.Tensor) -> int:
        if int(i) == 5:
            raise KeyError("no entry for five")
        return int(i)

    def stage(i: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"x": tf.ensure_shape(tf.py_function(check, [i], tf.int64), [])}

    return tf.data.Dataset.range(N).map(stage)


def test_a_stage_that_raises_ends_the_feed_behind_the_batches_before_it(serve: Any) -> None:
    server = serve({"n": pipeline(failing_at_5, batch={"size": 2})})
    for _ in range(3):
        with infeed.connect(str(server.address), "n", epochs=1) as feed:
            assert kept([feed.next(60), feed.next(60)]) == [0, 1, 2, 3]
            with pytest.raises(infeed.UserCodeError) as caught:
                feed.next(60)
            # Whoever asks again is told again.
            with pytest.raises(infeed.UserCodeError):
                feed.next(60)
        message = str(caught.value)
        assert "failing_at_5 failed: Traceback (most recent call last):" in message
        assert 'raise KeyError("no entry for five")' in message
        assert message.endswith("KeyError: 'no entry for five'")
        assert "site-packages" not in message
        assert caught.value.metadata["pipeline"] == "n"


def test_a_dataset_that_is_known_to_be_empty_is_not_served(serve: Any) -> None:
    with pytest.raises(infeed.InfeedError, match=r"empty|which has 0 samples"):
        serve({"n": pipeline(lambda: numbers().take(0))})


def test_a_dataset_that_turns_out_to_be_empty(serve: Any) -> None:
    def none() -> tf.data.Dataset:
        return numbers().filter(lambda _: False)

    server = serve({"n": pipeline(none)})
    assert not server.health.ready
    assert "is empty" in server.health.overall.reason
    for _ in range(2):
        feed = infeed.connect(str(server.address), "n")
        with feed, pytest.raises(infeed.SourceError, match=r"none is empty$"):
            feed.next(60)


def test_a_feed_that_closes_ends_a_long_way(serve: Any, eventually: Any) -> None:
    def slow() -> tf.data.Dataset:
        def rows() -> Iterator[int]:
            while True:
                threading.Event().wait(0.01)  # the way takes hours
                yield 0

        return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))

    server = serve({"n": pipeline(slow)})
    (engine,) = server._engines.values()
    with infeed.connect(str(server.address), "n") as feed:
        state = feed.state()
    with infeed.connect(str(server.address), "n", state={**state, "position": 1_000_000}) as feed:

        def wait() -> None:
            with contextlib.suppress(Exception):  # whatever tells it that the feed is closed
                feed.next()

        ahead = threading.Thread(target=wait)
        ahead.start()
        eventually(lambda: any(each._position > 40 for each in engine._readers), "it reads on")
        feed.close()
        ahead.join(60)
    # The stream is gone, and nobody reads on for it.
    eventually(lambda: not engine._sessions, "the stream is gone")
    eventually(lambda: not any(each._reading for each in engine._readers), "it reads no more")
