"""Runs: the position of each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infeed.cursor import Cursor
from infeed.run import Run
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.segment import Segment

CURSOR = Cursor("train", "ab12", 17, 645)


def segment(step: int, start: int, **changes: Any) -> Segment:
    """Returns a segment of 100 samples, taken by two ranks in batches of 4."""
    values = {"pipeline": "train", "fingerprint": "ab12", "seed": 17, **changes}
    sizes = {"batch_size": 4, "world_size": 2, **values}
    end = -(-(start + 1) // 100) * 100
    return Segment(
        step=step,
        start=start,
        epoch=start // 100,
        offset=start % 100,
        epoch_end=end,
        sample_count=100,
        shuffle="global",
        **sizes,
    )


AMENDED = Cursor(
    "train",
    "ab12",
    17,
    200,
    segments=(segment(0, 0, fingerprint="old"), segment(10, 80, batch_size=8)),
)


def test_positions_of_a_run_without_segments() -> None:
    assert Run("train").position(3, 4, 2) == 24
    assert Run("train").position(3, 4, 2, rank=1) == 28
    # 645 is 5 behind a step of 8.
    assert Run.of(CURSOR).position(80, 4, 2) == 645
    assert Run.of(CURSOR).at_step(3) is None


def test_sizes_are_the_segments_or_the_cursors() -> None:
    assert Run("train").sizes(3) == Run.of(CURSOR).sizes(3) == (None, None)
    assert Run.of(replace(CURSOR, batch_size=4, world_size=2)).sizes(3) == (4, 2)
    run = Run.of(replace(AMENDED, batch_size=7, world_size=7))
    assert [run.sizes(step) for step in (9, 10)] == [(4, 2), (8, 2)]


def test_positions_of_a_run_with_segments_have_its_sizes() -> None:
    run = Run.of(AMENDED.to_json())
    assert run.position(9, 1, 1, rank=1) == 9 * 8 + 4
    assert run.position(10, 1, 1) == 80
    assert run.position(12, 1, 1, rank=1) == 80 + 2 * 16 + 8
    assert [run.at_step(step) for step in (9, 10)] == list(run.lineage)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 4, 2), "step must be an integer from 0|step must be from 0"),
        ((0, 0, 2), "batch_size must be"),
        ((0, 4, 2, 2), "rank must be from 0 to 1"),
        ((1 << 61, 4, 2), "position must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Run("train").position(*arguments)
