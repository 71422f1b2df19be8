"""Tests of the state of a dataset: where a pass ends, with other options than those it was saved
with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.plugins.frameworks.torch.fakes import COUNT, STEPS, fake, ids, stream

import infeed
from infeed.shared.spec import Guarantee
from infeed.torch import FeedDataset


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), **options})


CURSOR = {"version": 1, "pipeline": "fake", "fingerprint": "a", "seed": 3, "position": 4}


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({}, "lacks version|lacks pipeline"),
        ({"cursor": {}, "until_epoch": 1}, "lacks"),
        ({"cursor": CURSOR, "until_epoch": 0}, "until_epoch must be 1 or more"),
        ({"cursor": CURSOR, "until_epoch": "1"}, "until_epoch must be 1 or more"),
        (7, "not int"),
    ],
)
def test_state_that_is_none_is_refused(state: Any, problem: str) -> None:
    with pytest.raises(infeed.CursorError, match=problem):
        dataset().load_state_dict(state)


def state_of_a_step(**options: Any) -> dict[str, Any]:
    """Returns the state after the first batch."""
    with dataset(**options) as data:
        next(iter(data))
        return data.state_dict()


def test_state_of_a_finite_pass_continues_in_an_endless_one() -> None:
    with dataset(state=state_of_a_step(epochs=1)) as data:
        given = ids(batch for _, batch in zip(range(2 * STEPS), data, strict=False))
    assert given == stream(2 * STEPS + 1)[1:]


def test_next_pass_begins_behind_epochs_of_the_remainder() -> None:
    shard = infeed.Shard(0, 2)
    with dataset(epochs=3, batch_size=25, shard=shard) as data:
        assert len(ids(data)) == 1  # of 50 samples over both ranks; 28 remain
        iter(data)
        assert data.state_dict()["cursor"]["position"] == 3 * COUNT


def test_second_pass_without_an_order_is_refused() -> None:
    transport = fake()
    transport.spec = replace(transport.spec, guarantee=Guarantee(order="none", resume="none"))
    with dataset(epochs=1, transport=transport) as data:
        assert len(ids(data)) == STEPS
        with pytest.raises(infeed.FeedClosedError, match="or they have no order"):
            next(iter(data))
