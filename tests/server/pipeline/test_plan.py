"""The plan of an indexed pipeline: what travels, what runs where, what is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed.errors import ConfigError
from infeed_server.pipeline.cache import CachedSource
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.plan import IndexedPlan, plan_indexed
from infeed_server.sources import open_source

NORMALIZE: dict[str, Any] = {"normalize": {"field": "image", "scale": 255.0}}


def planned(*transforms: Any, **changes: Any) -> IndexedPlan:
    arrays = {"image": np.zeros((10, 4, 4, 3), np.uint8), "label": np.arange(10)}
    definition = parse(
        {
            "source": {"arrays": arrays},
            "transforms": list(transforms),
            "batch": {"size": 4},
            **changes,
        }
    )
    return plan_indexed("one", definition, open_source(definition.source))


def test_the_elementwise_tail_travels_as_bytes() -> None:
    plan = planned(
        {"random_flip_left_right": {"field": "image"}},
        NORMALIZE,
        {"one_hot": {"field": "label", "depth": 10}},
    )
    assert [str(field) for field in plan.spec.wire_spec] == [
        "image: uint8[4, 4, 3]",
        "label: int64[]",
    ]
    assert [str(field) for field in plan.spec.element_spec] == [
        "image: float32[4, 4, 3]",
        "label: float32[10]",
    ]
    assert [step.name for _, step in plan.steps] == ["random_flip_left_right"]
    assert not plan.direct


def test_arrays_without_host_transforms_need_no_graph() -> None:
    assert planned(NORMALIZE).direct
    assert not planned({"random_flip_left_right": {"field": "image"}}).direct


def test_the_spec_says_what_the_definition_does() -> None:
    plan = planned(
        shuffle={"mode": "global", "seed": 9},
        batch={"size": 3, "remainder": "pad"},
        on_error="mask",
    )
    spec = plan.spec
    assert (spec.name, spec.seed, spec.batch_size, spec.remainder) == ("one", 9, 3, "pad")
    assert (spec.sample_count, spec.on_error, spec.batch_stride) == (10, "mask", 0)
    assert (spec.guarantee.order, spec.guarantee.delivery) == ("deterministic", "exactly_once")
    assert spec.guarantee.resume == "constant_time"
    ids = plan.order(9).slots(0, 10).index
    assert sorted(ids) == list(range(10))
    assert ids.tolist() != plan.order(8).slots(0, 10).index.tolist()


def test_a_cache_is_seen_through_when_a_sample_is_looked_into() -> None:
    resize = {"resize": {"field": "image", "size": [2, 2]}}
    flip = {"random_flip_left_right": {"field": "image"}}
    plan = planned(resize, "cache", flip)
    assert isinstance(plan.source, CachedSource)
    assert [ordinal for ordinal, _ in plan.steps] == [2]
    source, steps = plan.whole
    assert source is plan.source.source
    assert [(ordinal, step.name) for ordinal, step in steps] == [
        (0, "resize"),
        (2, "random_flip_left_right"),
    ]
    plain = planned(flip)
    assert plain.whole == (plain.source, plain.steps)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (None, "^batch: missing; say for example batch: {size: 64}$"),
        ({"size": 11}, "^batch.size: 11 is larger than the data set, which has 10 samples$"),
    ],
)
def test_batches_that_cannot_be_made(batch: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned(batch=batch)
