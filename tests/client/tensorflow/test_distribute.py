"""A pipeline of a data service as a data set: what it gives, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed.finish import finish
from infeed.registered import DatasetRequest
from infeed.spec import Cast, FinishTransform, Normalize, OneHot

SERVICE = tf.data.experimental.service


def distribute(server: Any, **options: Any) -> tf.data.Dataset:
    return infeed.tensorflow.distribute("fake", "fake", transport=server, **options)


def labels(dataset: Any) -> list[int]:
    return [int(each) for _, label, *_ in dataset for each in label]


def test_shapes_are_static_and_each_sample_comes_once(server: Any) -> None:
    dataset = distribute(server, epochs=1)
    assert dataset.element_spec == (
        tf.TensorSpec((5, 3, 4), tf.uint8),
        tf.TensorSpec((5,), tf.int64),
    )
    policy = dataset.options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF
    seen = []
    for image, label in dataset:
        assert (image.numpy() == label.numpy()[:, None, None]).all()
        seen += label.numpy().tolist()
    assert sorted(seen) == list(range(50))


def test_iterating_again_reads_anew(server: Any) -> None:
    dataset = distribute(server, epochs=1)
    for _ in range(2):
        assert sorted(labels(dataset)) == list(range(50))


def test_without_epochs_it_does_not_end(server: Any) -> None:
    for options in ({}, {"job_name": "endless"}):
        dataset = distribute(server, **options)
        assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        assert len(labels(dataset.take(25))) == 125


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
def test_it_can_be_made_in_a_graph(server: Any) -> None:
    def total() -> Any:
        dataset = distribute(server, epochs=1, job_name="graph")
        return dataset.reduce(tf.constant(0, tf.int64), lambda some, pair: some + pair[1][0])

    assert tf.function(total, autograph=False)() == sum(range(0, 50, 5))


def test_the_server_is_told_what_is_wanted(server: Any) -> None:
    distribute(server)
    distribute(server, batch_size=10, seed=3, epochs=2, remainder="pad", compression="none")
    assert server.requests == [
        DatasetRequest("fake", server.spec.fingerprint),
        DatasetRequest("fake", server.spec.fingerprint, 10, 3, 2, "pad", "none"),
    ]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, ("x", "y")),
        ({"label": None}, {"x": "x", "y": "y"}),
        ({"label": "other"}, {"x": "x", "y": "y"}),
        ({"mask": True}, ("x", "y", "weight")),
        ({"sample_ids": True}, ({"x": "x", "sample_ids": "ids"}, "y")),
        ({"sample_ids": True, "label": None}, {"x": "x", "y": "y", "sample_ids": "ids"}),
    ],
)
def test_structures(make: Any, options: Any, want: Any) -> None:
    kinds = {tf.int32: "x", tf.int16: "y", tf.float32: "weight", tf.int64: "ids"}
    server = make({"x": np.zeros(20, np.int32), "y": np.zeros(20, np.int16)})
    dataset = distribute(server, **{"label": "y"} | options)
    assert tf.nest.map_structure(lambda spec: kinds[spec.dtype], dataset.element_spec) == want


def test_padding_has_no_weight_and_no_sample(server: Any) -> None:
    dataset = distribute(server, epochs=1, batch_size=20, remainder="pad", sample_ids=True)
    assert len(dataset.element_spec) == 3
    seen = []
    for inputs, label, weight in dataset:
        ids = inputs["sample_ids"].numpy()
        assert (weight.numpy() == (ids >= 0)).all()
        assert (label.numpy() == np.maximum(ids, 0)).all()
        seen += ids.tolist()
    assert sorted(seen) == [-1] * 10 + list(range(50))


def test_weights_come_where_slots_can_be_empty(make: Any, rows: Any, server: Any) -> None:
    assert len(distribute(make(rows, on_error="mask")).element_spec) == 3
    assert len(distribute(make(rows, on_error="mask"), mask=False).element_spec) == 2


TRANSFORMS: list[FinishTransform] = [
    Normalize("image", 255.0, (0.1, 0.2, 0.3, 0.4), (0.3,)),
    Cast("image", "float16"),
    OneHot("label", 60, off_value=0.5),
]


def test_finish_transforms_give_the_bits_of_numpy(make: Any, rows: Any) -> None:
    server = make(rows, finish_transforms=TRANSFORMS, batch_size=20)
    options = {"epochs": 1, "remainder": "pad", "sample_ids": True}
    for inputs, label, _ in distribute(server, **options).take(3):
        ids = inputs["sample_ids"].numpy()
        mask = ids >= 0
        raw = {name: array[ids] for name, array in rows.items()}
        for array in raw.values():
            array[~mask] = 0
        expected = finish(raw, TRANSFORMS, mask)
        assert inputs["image"].numpy().tobytes() == expected["image"].tobytes()
        assert label.numpy().tobytes() == expected["label"].tobytes()


def test_byte_strings(make: Any) -> None:
    words = np.array([b"a", b"", b"\x00\xff", b"longer"], object)
    (batch,) = distribute(make({"word": words}, batch_size=4), epochs=1, job_name="words").take(1)
    assert batch["word"].numpy().tolist() == words.tolist()


# --- who gets what ---


@pytest.mark.parametrize(
    ("mode", "times"),
    [
        ("off", 2),  # both workers make all
        ("DYNAMIC", 1),
        (SERVICE.ShardingPolicy.DATA, 1),
        ("file_or_data", 1),
        ("Hint", 1),
    ],
)
def test_sharding_policies(server: Any, mode: Any, times: int) -> None:
    assert sorted(labels(distribute(server, epochs=1, processing_mode=mode))) == sorted(
        [*range(50)] * times
    )
    assert server.requests[0].shard_hint == (mode == "Hint")


def test_a_job_is_shared_and_one_without_a_name_is_not(server: Any) -> None:
    options = {"epochs": 8, "max_outstanding_requests": 1}
    alone = distribute(server, **options)
    together = [distribute(server, job_name="shared", **options) for _ in range(2)]
    first, second = (iter(dataset) for dataset in together)
    got = [int(each) for _ in range(3) for batches in (first, second) for each in next(batches)[1]]
    got += in_threads(partial(labels, first), partial(labels, second))
    assert sorted(got) == sorted(labels(alone)) == sorted([*range(50)] * 8)


def in_threads(*readers: Callable[[], list[int]]) -> list[int]:
    with ThreadPoolExecutor() as pool:
        return [
            each for done in [pool.submit(reader) for reader in readers] for each in done.result()
        ]


def test_a_job_that_has_ended_says_so_each_time(server: Any) -> None:
    done = distribute(server, epochs=1, job_name="done")
    assert len(labels(done)) == 50
    late = distribute(server, epochs=1, job_name="done")
    assert late.cardinality() == done.cardinality() == tf.data.UNKNOWN_CARDINALITY
    with pytest.raises(tf.errors.InvalidArgumentError, match="job done of pipeline fake gave"):
        labels(late)
    assert len(labels(done)) == 50, "it was read anew, as often as by the first"


def test_coordinated_reads_take_turns_by_rounds(server: Any) -> None:
    consumers = [
        iter(
            distribute(
                server,
                processing_mode="off",
                job_name="rounds",
                num_consumers=2,
                consumer_index=index,
                sample_ids=True,
            )
        )
        for index in range(2)
    ]

    def read(index: int) -> list[int]:
        return [int(next(consumers[index])[0]["sample_ids"][0]) for _ in range(12)]

    with ThreadPoolExecutor() as pool:
        got = list(pool.map(read, range(2)))
    # Each worker hands the batches that it makes in order to the consumers of a round.
    assert [(second - first) % 50 for first, second in zip(*got, strict=True)] == [5] * 12


def test_trainers_can_share_what_is_cached(server: Any) -> None:
    for trainer in ("a", "b"):
        dataset = distribute(server, job_name="cached", cross_trainer_cache=trainer)
        assert len(labels(dataset.take(4))) == 20


def test_keras_fits_it(server: Any) -> None:
    model = tf.keras.Sequential(
        [tf.keras.Input((3, 4)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    dataset = distribute(server, epochs=1, remainder="pad", batch_size=20)
    with pytest.warns(UserWarning, match="ran out of data"):  # Keras met the end, which it awaited
        fitted = model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    assert len(fitted.history["loss"]) == 2
    fitted = model.fit(distribute(server), steps_per_epoch=3, shuffle=False, verbose=0)
    assert len(fitted.history["loss"]) == 1
