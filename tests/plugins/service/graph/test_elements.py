"""Tests of the graphs of users' datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.errors import InvalidRequestError
from infeed_server.pipeline.load import parse
from infeed_service.graph import DataServicePlan, Variant, plan_data_service

N = 20


def samples() -> tf.data.Dataset:
    data = {"x": np.arange(N), "name": [f"{i}" for i in range(N)], "flag": np.arange(N) % 2 == 0}
    return tf.data.Dataset.from_tensor_slices(data)


def planned(function: Callable[[], tf.data.Dataset], **options: Any) -> DataServicePlan:
    return plan_data_service("mine", parse({"source": {"dataset": function}, **options}))


def read(plan: DataServicePlan, variant: Variant) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(plan.dataset(variant).as_numpy_iterator())


def test_last_batch_is_padded_or_dropped() -> None:
    plan = planned(samples, batch={"size": 8})
    padded = read(plan, Variant(8, 0, 1, "pad"))
    assert [metadata["mask"].sum() for _, metadata in padded] == [8, 8, 4]
    fields, metadata = padded[-1]
    assert metadata["mask"].tolist() == [True] * 4 + [False] * 4
    assert metadata["epoch"] == 0
    assert metadata.keys() == {"epoch", "mask"}
    assert fields["x"].tolist() == [16, 17, 18, 19, 0, 0, 0, 0]
    assert fields["name"].tolist() == [b"16", b"17", b"18", b"19", b"", b"", b"", b""]
    assert fields["flag"].dtype == bool
    dropped = read(plan, Variant(8, 0, 1, "drop"))
    assert [fields["x"][0] for fields, _ in dropped] == [0, 8]
    ((fields, metadata),) = read(plan, Variant(24, 0, 1, "pad"))
    assert fields["x"][metadata["mask"]].tolist() == [*range(N)]
    with pytest.raises(InvalidRequestError, match="no complete batch: a batch needs 24 samp"):
        plan.dataset(Variant(24, 0, 1, "drop"))


def test_batches_span_epochs() -> None:
    plan = planned(samples, batch={"size": 8})
    batches = read(plan, Variant(8, 0, 2, "pad"))
    assert [metadata["mask"].all() for _, metadata in batches] == [True] * 5
    values = np.concatenate([fields["x"] for fields, _ in batches])
    assert values.tolist() == [*range(N), *range(N)]
    endless = plan.dataset(Variant(8, 0, 0, "drop"))
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY


def test_user_batches_keep_their_size() -> None:
    plan = planned(lambda: samples().batch(8))
    assert (plan.spec.batch_size, plan.spec.batch_stride) == (8, 8)
    padded = read(plan, Variant(8, 0, 1, "pad"))
    assert [metadata["mask"].sum() for _, metadata in padded] == [8, 8, 4]
    assert padded[-1][0]["name"].tolist()[3:5] == [b"19", b""]
    assert len(read(plan, Variant(8, 0, 2, "drop"))) == 4
    with pytest.raises(
        InvalidRequestError, match=r"batch size 4 is not available: .* makes batches of 8"
    ):
        plan.dataset(Variant(4, 0, 1, "pad"))


def test_oversized_user_batch_is_an_error() -> None:
    def growing() -> tf.data.Dataset:
        return tf.data.Dataset.range(2).map(lambda i: {"x": tf.zeros([4 + i])})

    with pytest.raises(tf.errors.InvalidArgumentError, match="a batch of more than 4 samples"):
        read(planned(growing), Variant(4, 0, 1, "pad"))


def test_variant_seed_seeds_the_user_function() -> None:
    plan = planned(lambda: samples().shuffle(N), batch={"size": N})
    first, again, other = (
        read(plan, Variant(N, seed, 1, "pad"))[0][0]["x"].tolist() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_spec_guarantees_no_order() -> None:
    plan = planned(samples, batch={"size": 8, "remainder": "pad"})
    spec = plan.spec
    assert (spec.batch_size, spec.batch_stride, spec.remainder) == (8, 0, "pad")
    assert spec.remainder_scope == "worker"
    assert spec.sample_count is None
    guarantee = spec.guarantee
    assert (guarantee.order, guarantee.delivery, guarantee.resume) == (
        *("none", "at_most_once", "none"),
    )
