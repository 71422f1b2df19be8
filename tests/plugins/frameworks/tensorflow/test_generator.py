"""Datasets over a feed, up to Keras' `fit`."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, any_blocked_in, infeed_threads, until

import infeed
from infeed.prefetch import prefetcher
from infeed.shared.errors import FeedClosedError, InvalidRequestError, SampleError
from infeed.testing import FakeTransport

tf = pytest.importorskip("tensorflow")


def connect(fake: FakeTransport, **options: Any) -> infeed.Feed:
    return infeed.connect("fake", "fake", transport=fake, **options)


def test_shapes_are_static_and_values_are_the_feeds(fake: FakeTransport, arrays: Any) -> None:
    with connect(fake, epochs=1) as feed:
        dataset = infeed.tensorflow.from_generator(feed)
        x, y = dataset.element_spec
        assert (x.shape, x.dtype) == ((4, 3, 4), tf.uint8)
        assert (y.shape, y.dtype) == ((4,), tf.int64)
        assert dataset.cardinality() == 12
        policy = dataset.options().experimental_distribute.auto_shard_policy
        assert policy == tf.data.experimental.AutoShardPolicy.OFF
        seen = []
        for image, label in dataset:
            np.testing.assert_array_equal(image, arrays["image"][label.numpy()])
            seen += label.numpy().tolist()
    assert seen == fake.sample_ids(3, 0, 48).tolist()


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ("xy", {}, ("x", "y")),
        ("xyz", {}, ({"x": "x", "z": "z"}, "y")),
        ("xyz", {"label": "z"}, ({"x": "x", "y": "y"}, "z")),
        ("xy", {"label": None}, {"x": "x", "y": "y"}),
        ("xz", {"label": "label"}, {"x": "x", "z": "z"}),
        ("xy", {"mask": True}, ("x", "y", "weight")),
        ("xz", {"label": None, "mask": True}, ({"x": "x", "z": "z"}, "weight")),
        ("xy", {"ids": "id"}, ({"x": "x", "id": "id"}, "y")),
        ("xy", {"label": None, "ids": "id"}, {"x": "x", "y": "y", "id": "id"}),
    ],
)
def test_options_set_the_element_structure(fields: str, options: Any, expected: Any) -> None:
    arrays = {name: np.full(8, index, np.int32) for index, name in enumerate(fields)}
    with connect(FakeTransport(arrays, batch_size=4), epochs=1) as feed:
        options = {"label": "y"} | options
        first = next(iter(infeed.tensorflow.from_generator(feed, **options)))

    def name(tensor: Any) -> str:
        if tensor.dtype == tf.int32:
            return fields[int(tensor[0])]
        return {tf.float32: "weight", tf.int64: "id"}[tensor.dtype]

    assert tf.nest.map_structure(name, first) == expected


def test_a_label_without_other_fields_raises() -> None:
    with (
        connect(FakeTransport({"label": np.arange(8)}, batch_size=4)) as feed,
        pytest.raises(InvalidRequestError, match="label=None"),
    ):
        infeed.tensorflow.from_generator(feed)


def test_padding_is_cut(fake: FakeTransport) -> None:
    with connect(fake, epochs=1, batch_size=20, remainder="pad") as feed:
        dataset = infeed.tensorflow.from_generator(feed)
        assert [len(label) for _, label in dataset] == [20, 20, 10]


def test_padding_that_is_kept_has_weight_0(fake: FakeTransport) -> None:
    with connect(fake, epochs=1, batch_size=20, remainder="pad") as feed:
        *_, (image, label, weight) = infeed.tensorflow.from_generator(feed, mask=True)
    assert weight.dtype == tf.float32
    assert weight.numpy().tolist() == [1.0] * 10 + [0.0] * 10
    assert image.shape == (20, 3, 4)
    assert not label.numpy()[10:].any()


@pytest.mark.parametrize(
    ("pipeline", "options", "slots"),
    [
        ({}, {"epochs": 1}, 4),
        ({}, {"epochs": 1, "remainder": "pad"}, None),
        ({}, {"remainder": "pad"}, 4),
        ({"on_error": "mask"}, {}, None),
    ],
)
def test_slots_vary_if_some_can_be_empty(
    arrays: Any, pipeline: Any, options: Any, slots: int | None
) -> None:
    with connect(FakeTransport(arrays, batch_size=4, **pipeline), **options) as feed:
        for mask, size in ((False, slots), (True, 4)):
            spec = infeed.tensorflow.from_generator(feed, mask=mask).element_spec
            assert {part.shape[0] for part in spec} == {size}


def test_the_end_is_a_multiple_of_the_replicas(fake: FakeTransport) -> None:
    with connect(fake, epochs=1) as feed:
        dataset = infeed.tensorflow.from_generator(feed, replicas=5)
        assert (dataset.cardinality(), len(list(dataset))) == (10, 10)
        assert feed.state()["position"] == 40
    fake.spec = replace(fake.spec, parts={"all": 50})
    with connect(fake, epochs=1, remainder="pad") as feed:
        options: Any = {"mask": True, "ids": "id", "part": "part", "replicas": 5}
        dataset = infeed.tensorflow.from_generator(feed, **options)
        steps = [(x, weights.numpy()) for x, _, weights in dataset]
        slots = [(x["id"].numpy(), weights) for x, weights in steps]
        parts = np.concatenate([x["part"].numpy() for x, _ in steps])
        assert dataset.cardinality() == 15
        assert [weights.sum() for _, weights in slots] == [4] * 12 + [2, 0, 0]
        ids = np.concatenate([ids for ids, _ in slots])
        assert [*ids[:50]] == [*fake.sample_ids(3, 0, 50)]
        assert [*ids[50:]] == [-1] * 10
        assert [*parts] == [0] * 50 + [-1] * 10


def test_data_of_unknown_length_get_empty_batches(arrays: Any) -> None:
    fake = FakeTransport(arrays, batch_size=4, length_known=False)
    with connect(fake, epochs=1, remainder="pad") as feed:
        dataset = infeed.tensorflow.from_generator(feed, mask=True, replicas=5)
        assert [int(sum(weights)) for *_, weights in dataset][12:] == [2, 0, 0, 0, 0]


@pytest.mark.parametrize(("length_known", "length"), [(True, "12"), (False, "unknown")])
def test_replicas_that_would_lose_all_are_refused(
    arrays: Any, length_known: bool, length: str
) -> None:
    fake = FakeTransport(arrays, batch_size=4, length_known=length_known)
    with (
        connect(fake, epochs=1) as feed,
        pytest.raises(InvalidRequestError, match=f"whose length is {length}, and TensorFlow drops"),
    ):
        infeed.tensorflow.from_generator(feed, replicas=13)


def test_an_iteration_without_the_first_batches_is_refused_at_its_end(fake: FakeTransport) -> None:
    with connect(fake, epochs=1) as feed:
        dataset = infeed.tensorflow.from_generator(feed)
        next(iter(dataset))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"lacks its first batches.*restart=True"
        ):
            list(dataset)


def test_each_iteration_begins_again_with_restart(fake: FakeTransport) -> None:
    with connect(fake, epochs=1, remainder="pad") as feed:
        dataset = infeed.tensorflow.from_generator(feed, restart=True)
        next(iter(dataset))  # as Keras does under a strategy, to build a model
        passes = [np.concatenate([label for _, label in dataset]).tolist() for _ in range(2)]
    assert passes == [fake.sample_ids(3, 0, 50).tolist()] * 2


def test_byte_strings_are_read() -> None:
    words = np.array([b"a", b"", b"\x00\xff", b"longer"], object)
    with connect(FakeTransport({"word": words}, batch_size=4, shuffle=False), epochs=1) as feed:
        (batch,) = infeed.tensorflow.from_generator(feed)
    assert batch["word"].dtype == tf.string
    assert batch["word"].numpy().tolist() == words.tolist()


def test_a_second_iteration_continues_the_feed(fake: FakeTransport) -> None:
    with connect(fake) as feed:
        dataset = infeed.tensorflow.from_generator(feed, label=None)
        labels = [b["label"].numpy().tolist() for _ in range(3) for b in dataset.take(2)]
    assert np.concatenate(labels).tolist() == fake.sample_ids(3, 0, 24).tolist()


def test_an_error_of_the_feed_is_raised(arrays: Any) -> None:
    def fail(start: int) -> None:
        if start == 4:
            raise SampleError("a.jpg is no image")

    with connect(FakeTransport(arrays, batch_size=4, before_batch=fail)) as feed:
        batches = iter(infeed.tensorflow.from_generator(feed))
        next(batches)
        with pytest.raises(tf.errors.UnknownError, match=r"SampleError: a\.jpg is no image"):
            next(batches)


def test_an_abandoned_iterator_does_not_hang(fake: FakeTransport) -> None:
    with connect(fake) as feed:
        batches = iter(infeed.tensorflow.from_generator(feed).prefetch(2))
        next(batches)
        del batches
        gc.collect()
    until(lambda: not infeed_threads())


def test_closing_the_feed_ends_a_blocked_iteration(
    arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetcher, "JOIN_TIMEOUT_SECONDS", 0.01)  # the reader thread is blocked
    gate = threading.Event()

    def block(start: int) -> None:
        if start >= 4:
            gate.wait(2 * HANG_SECONDS)

    feed = connect(FakeTransport(arrays, batch_size=4, before_batch=block))
    batches = iter(infeed.tensorflow.from_generator(feed))
    next(batches)

    def close() -> None:
        until(lambda: any_blocked_in("wait", "first"))
        feed.close()

    closer = threading.Thread(target=close)
    closer.start()
    assert list(batches) == []
    closer.join()
    gate.set()
    until(lambda: not infeed_threads())


def test_a_closed_feed_raises(fake: FakeTransport) -> None:
    feed = connect(fake)
    dataset = infeed.tensorflow.from_generator(feed)
    feed.close()
    with pytest.raises(tf.errors.UnknownError, match=FeedClosedError.__name__):
        next(iter(dataset))
