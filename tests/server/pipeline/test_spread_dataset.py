"""Users' own datasets, spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.errors import InvalidRequestError
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.spread import SpreadPlan, Variant, plan_spread

N = 20


def samples() -> tf.data.Dataset:
    data = {"x": np.arange(N), "name": [f"{i}" for i in range(N)], "flag": np.arange(N) % 2 == 0}
    return tf.data.Dataset.from_tensor_slices(data)


def planned(function: Callable[[], tf.data.Dataset], **options: Any) -> SpreadPlan:
    return plan_spread("mine", parse({"source": {"dataset": function}, **options}))


def read(plan: SpreadPlan, variant: Variant) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(plan.dataset(variant).as_numpy_iterator())


def test_the_last_batch_is_padded_or_dropped() -> None:
    plan = planned(samples, batch={"size": 8})
    padded = read(plan, Variant(8, 0, 1, "pad"))
    assert [about["mask"].sum() for _, about in padded] == [8, 8, 4]
    fields, about = padded[-1]
    assert about["mask"].tolist() == [True] * 4 + [False] * 4
    assert about["epoch"] == 0
    assert about.keys() == {"epoch", "mask"}
    assert fields["x"].tolist() == [16, 17, 18, 19, 0, 0, 0, 0]
    assert fields["name"].tolist() == [b"16", b"17", b"18", b"19", b"", b"", b"", b""]
    assert fields["flag"].dtype == bool
    dropped = read(plan, Variant(8, 0, 1, "drop"))
    assert [fields["x"][0] for fields, _ in dropped] == [0, 8]


def test_batches_span_epochs() -> None:
    plan = planned(samples, batch={"size": 8})
    batches = read(plan, Variant(8, 0, 2, "pad"))
    assert [about["mask"].all() for _, about in batches] == [True] * 5
    seen = np.concatenate([fields["x"] for fields, _ in batches])
    assert seen.tolist() == [*range(N), *range(N)]
    endless = plan.dataset(Variant(8, 0, 0, "drop"))
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY


def test_elements_that_are_batches_keep_their_size() -> None:
    plan = planned(lambda: samples().batch(8))
    assert (plan.spec.batch_size, plan.spec.batch_stride) == (8, 8)
    padded = read(plan, Variant(8, 0, 1, "pad"))
    assert [about["mask"].sum() for _, about in padded] == [8, 8, 4]
    assert padded[-1][0]["name"].tolist()[3:5] == [b"19", b""]
    assert len(read(plan, Variant(8, 0, 2, "drop"))) == 4
    with pytest.raises(InvalidRequestError, match="makes batches of 8, so 4 cannot be had"):
        plan.dataset(Variant(4, 0, 1, "pad"))


def test_a_batch_that_is_too_large_is_named() -> None:
    def growing() -> tf.data.Dataset:
        return tf.data.Dataset.range(2).map(lambda i: {"x": tf.zeros([4 + i])})

    with pytest.raises(tf.errors.InvalidArgumentError, match="a batch of more than 4 samples"):
        read(planned(growing), Variant(4, 0, 1, "pad"))


def test_every_shape_is_static() -> None:
    for function, options in ((samples, {"batch": {"size": 8}}), (lambda: samples().batch(8), {})):
        fields, about = planned(function, **options).dataset(Variant(8, 0, 1, "pad")).element_spec
        assert fields["name"] == tf.TensorSpec([8], tf.string)
        assert about == {"epoch": tf.TensorSpec([], tf.int64), "mask": tf.TensorSpec([8], tf.bool)}


def test_the_seed_seeds_the_users_function() -> None:
    plan = planned(lambda: samples().shuffle(N), batch={"size": N})
    first, again, other = (
        read(plan, Variant(N, seed, 1, "pad"))[0][0]["x"].tolist() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_what_is_promised() -> None:
    plan = planned(samples, batch={"size": 8, "remainder": "pad"})
    spec = plan.spec
    assert (spec.batch_size, spec.batch_stride, spec.remainder) == (8, 0, "pad")
    assert spec.sample_count is None
    guarantee = spec.guarantee
    assert (guarantee.order, guarantee.delivery, guarantee.resume) == (
        *("none", "at_most_once", "none"),
    )


def test_paths_that_the_function_finds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_files() -> tf.data.Dataset:
        return tf.data.TextLineDataset(FILES).map(lambda line: {"line": line})

    here = planned(from_files, batch={"size": 8})
    assert planned(from_files, batch={"size": 8}).location == here.location
    monkeypatch.setitem(globals(), "FILES", ["/elsewhere/a.txt"])
    elsewhere = planned(from_files, batch={"size": 8})
    assert elsewhere.spec.fingerprint == here.spec.fingerprint
    assert elsewhere.location != here.location
    variant = Variant(8, 0, 1, "pad")
    assert elsewhere.dataset_id(variant, "AUTO") != here.dataset_id(variant, "AUTO")


FILES = ["/here/a.txt"]


def test_the_users_bound_on_memory_stays() -> None:
    def modest() -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.ram_budget = 1 << 20
        return samples().with_options(options)

    variant = Variant(8, 0, 1, "pad")
    for function, budget in ((modest, 1 << 20), (samples, 1 << 30)):
        dataset = planned(function, batch={"size": 8}).dataset(variant)
        assert dataset.options().autotune.ram_budget == budget
