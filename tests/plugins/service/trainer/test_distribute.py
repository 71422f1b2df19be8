"""Datasets over a pipeline of the data service: their elements, and how trainers share them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.harness.nursery import Nursery
from tests.harness.process import ROOT

import infeed
from infeed.shared.finish import finish
from infeed.shared.spec import Cast, FinishTransform, Normalize, OneHot
from infeed_service.dataset import DatasetRequest

SERVICE = tf.data.experimental.service


def distribute(server: Any, **options: Any) -> tf.data.Dataset:
    return infeed.tensorflow.distribute("fake", "fake", transport=server, **options)


def labels(dataset: Any) -> list[int]:
    return [int(label) for _, batch_labels, *_ in dataset for label in batch_labels]


def test_shapes_are_static_and_each_sample_is_read_once(server: Any) -> None:
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


def test_a_dataset_without_epochs_is_endless(server: Any) -> None:
    for options in ({}, {"job_name": "endless"}):
        dataset = distribute(server, **options)
        assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        assert len(labels(dataset.take(25))) == 125


def test_options_are_sent_to_the_server(server: Any) -> None:
    distribute(server)
    distribute(server, batch_size=10, seed=3, epochs=2, remainder="pad", compression="none")
    assert server.requests == [
        DatasetRequest("fake", server.spec.fingerprint),
        DatasetRequest("fake", server.spec.fingerprint, 10, 3, 2, "pad", "none"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("x", "y")),
        ({"label": None}, {"x": "x", "y": "y"}),
        ({"label": "label"}, {"x": "x", "y": "y"}),
        ({"mask": True}, ("x", "y", "weight")),
        ({"sample_ids": True}, ({"x": "x", "sample_ids": "ids"}, "y")),
        ({"sample_ids": True, "label": None}, {"x": "x", "y": "y", "sample_ids": "ids"}),
    ],
)
def test_options_set_the_element_structure(make_server: Any, options: Any, expected: Any) -> None:
    names = {tf.int32: "x", tf.int16: "y", tf.float32: "weight", tf.int64: "ids"}
    server = make_server({"x": np.zeros(20, np.int32), "y": np.zeros(20, np.int16)})
    dataset = distribute(server, **{"label": "y"} | options)
    assert tf.nest.map_structure(lambda spec: names[spec.dtype], dataset.element_spec) == expected


def test_padding_is_cut(server: Any) -> None:
    dataset = distribute(server, epochs=1, batch_size=20, remainder="pad", sample_ids=True)
    assert sorted(len(label) for _, label in dataset) == [10, 20, 20]
    seen = np.concatenate([inputs["sample_ids"] for inputs, _ in dataset])
    assert sorted(seen.tolist()) == list(range(50))


def test_padding_that_is_kept_has_weight_0_and_sample_id_minus_1(server: Any) -> None:
    options = {"epochs": 1, "batch_size": 20, "remainder": "pad", "sample_ids": True}
    dataset = distribute(server, **options, mask=True)
    seen = []
    for inputs, label, weight in dataset:
        ids = inputs["sample_ids"].numpy()
        assert (weight.numpy() == (ids >= 0)).all()
        assert (label.numpy() == np.maximum(ids, 0)).all()
        seen += ids.tolist()
    assert sorted(seen) == [-1] * 10 + list(range(50))


def test_empty_batches_complete_the_step_of_several_replicas(server: Any) -> None:
    options = {"epochs": 1, "batch_size": 20, "remainder": "pad", "mask": True}
    dataset = distribute(server, replicas=3, sample_ids=True, **options)
    *_, (inputs, _, weights) = batches = list(dataset)
    assert sorted(int(sum(weights)) for *_, weights in batches) == [0, 0, 10, 20, 20]
    assert set(inputs["sample_ids"].numpy()) == {-1}
    assert not weights.numpy().any()


def test_an_evaluation_on_two_devices_is_exact(nursery: Nursery, tmp_path: Path) -> None:
    module = ("python", "-m", "tests.plugins.service.trainer.strategy")
    process = nursery.start(module, tmp_path / "trainer", ROOT)
    assert process.wait(200) == 0, process.stderr[-4000:]
    result = json.loads(process.stdout.splitlines()[-1])
    assert (result["cut"], result["kept"]) == (50, 50)
    assert result["refusal"].startswith("a strategy with 2 replicas is in scope")


def test_slots_vary_if_some_can_be_empty(make_server: Any, rows: Any) -> None:
    server = make_server(rows, on_error="mask", batch_size=5)
    for mask, size in ((False, None), (True, 5)):
        assert {spec.shape[0] for spec in distribute(server, mask=mask).element_spec} == {size}


TRANSFORMS: list[FinishTransform] = [
    Normalize("image", 255.0, (0.1, 0.2, 0.3, 0.4), (0.3,)),
    Cast("image", "float16"),
    OneHot("label", 60, off_value=0.5),
]


def test_finish_transforms_equal_numpy(make_server: Any, rows: Any) -> None:
    server = make_server(rows, finish_transforms=TRANSFORMS, batch_size=20)
    options = {"epochs": 1, "remainder": "pad", "sample_ids": True, "mask": True}
    for inputs, label, _ in distribute(server, **options).take(3):
        ids = inputs["sample_ids"].numpy()
        mask = ids >= 0
        raw = {name: array[ids] for name, array in rows.items()}
        for array in raw.values():
            array[~mask] = 0
        expected = finish(raw, TRANSFORMS, mask)
        assert inputs["image"].numpy().tobytes() == expected["image"].tobytes()
        assert label.numpy().tobytes() == expected["label"].tobytes()


# --- sharing among workers and trainers ---


@pytest.mark.parametrize(
    ("mode", "readings"),
    [
        ("off", 2),  # each of two workers makes all
        ("DYNAMIC", 1),
        (SERVICE.ShardingPolicy.DATA, 1),
        ("file_or_data", 1),
        ("Hint", 1),
    ],
)
def test_a_sharding_policy_sets_how_often_samples_are_read(
    server: Any, mode: Any, readings: int
) -> None:
    assert sorted(labels(distribute(server, epochs=1, processing_mode=mode))) == sorted(
        [*range(50)] * readings
    )
    assert server.requests[0].shard_hint == (mode == "Hint")


def test_trainers_share_a_cache(server: Any) -> None:
    for trainer in ("a", "b"):
        dataset = distribute(server, job_name="cached", cross_trainer_cache=trainer)
        assert len(labels(dataset.take(4))) == 20
