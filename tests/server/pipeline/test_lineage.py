"""Tests of `pipeline/lineage.py`: segments of peers, whose numbers can be anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Segment
from infeed_server.order import permutation
from infeed_server.pipeline import lineage
from infeed_server.pipeline.indexed_plan import IndexedPlan, plan_indexed
from infeed_server.pipeline.load import parse

N, SEED = 50, 3


def plan(**options: Any) -> IndexedPlan:
    source = {"arrays": {"x": np.arange(N)}}
    definition = parse({"source": source, "batch": 4, "remove": [7, 8], **options})
    return plan_indexed("p", definition, definition.open())


def first(plan: IndexedPlan, **options: Any) -> Segment:
    segment = Segment(0, 0, "p", plan.spec.fingerprint, SEED, 4, 1, 0, 0, N, N, "none")
    return replace(segment, **options)


@pytest.mark.parametrize("count", [N + 1, 1 << 40, 1 << 62, (1 << 63) - 1])
def test_stable_orders_of_more_samples_than_there_are_are_never_made(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(permutation, "stable_permutation", lambda count, *_: made.append(count))
    served = plan()
    huge = first(served, sample_count=count, epoch_end=count, shuffle="stable")
    rest = replace(huge, step=1, start=4, shuffle="none", removed=2, shrinks=True)
    with pytest.raises(InvalidRequestError, match=f"a segment has {count} samples"):
        served.order(SEED, (huge, rest))
    assert not made


def test_stable_orders_of_too_many_samples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MAX_STABLE", N - 1)
    served = plan()
    with pytest.raises(InvalidRequestError, match="a stable order of more than 49"):
        served.order(SEED, (first(served, shuffle="stable"), first(served, removed=2)))
    assert served.order(SEED, (first(served, removed=2),)).last.count == N


def test_segments_without_samples_are_refused() -> None:
    served = plan()
    empty = first(served, sample_count=0, epoch_end=0)
    with pytest.raises(InvalidRequestError, match="a segment has 0 samples"):
        served.order(SEED, (empty, first(served, removed=2, epoch=1)))


@pytest.mark.parametrize(
    "shuffle",
    ["window:0:1", "window:1:-1", f"window:{1 << 63}:1", f"window:1:{10**30}", "global:1", "", "x"],
)
def test_unknown_orders_are_refused(shuffle: str) -> None:
    served = plan()
    with pytest.raises(InvalidRequestError, match="does not fit pipeline 'p'"):
        served.order(SEED, (first(served, shuffle=shuffle), first(served, removed=2)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 1},
        {"epoch": 1},
        {"offset": 1},
        {"epoch_end": N - 1},
        {"seed": SEED + 1},
        {"fingerprint": "other"},
        {"shuffle": "global"},
        {"sample_count": N - 1, "epoch_end": N - 1},
        {"sample_count": 0},
        {"removed": 1},
        {"removed": 3},
        {"removed": -1},
    ],
    ids=str,
)
def test_segments_that_the_pipeline_cannot_have_are_refused(wrong: dict[str, Any]) -> None:
    served = plan()
    assert served.order(SEED, (first(served, removed=2),)).slots(0, N).index.size == N
    with pytest.raises(InvalidRequestError, match="does not fit pipeline 'p'"):
        served.order(SEED, (first(served, **{"removed": 2, **wrong}),))
