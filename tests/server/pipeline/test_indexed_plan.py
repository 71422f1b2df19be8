"""Tests of `pipeline/indexed_plan.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse
from infeed_server.pipeline.sample_cache import CachedSource
from infeed_server.sources.registry import open_source

NORMALIZE: dict[str, Any] = {"normalize": {"field": "image", "scale": 255.0}}


def plan_of(*transforms: Any, **changes: Any) -> IndexedPlan:
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


def test_elementwise_tail_is_left_to_the_trainer() -> None:
    plan = plan_of(
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
    assert not plan.is_passthrough


def test_spec_has_the_values_of_the_definition() -> None:
    plan = plan_of(
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


def test_uncached_has_the_source_behind_the_cache() -> None:
    resize = {"resize": {"field": "image", "size": [2, 2]}}
    flip = {"random_flip_left_right": {"field": "image"}}
    plan = plan_of(resize, "cache", flip)
    assert isinstance(plan.source, CachedSource)
    assert [ordinal for ordinal, _ in plan.steps] == [2]
    source, steps = plan.uncached
    assert source is plan.source.source
    assert [(ordinal, step.name) for ordinal, step in steps] == [
        (0, "resize"),
        (2, "random_flip_left_right"),
    ]
    plain = plan_of(flip)
    assert plain.uncached == (plain.source, plain.steps)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, "^batch: missing; add for example batch: {size: 64}$"),
        ({"size": 11}, "^batch.size: 11 is larger .* 10 samples; .* {size: 11, remainder: pad}"),
    ],
)
def test_impossible_batch_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(batch=batch)
