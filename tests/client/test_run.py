"""Runs: the position of each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infeed.course import Course
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


def test_steps_of_a_run_without_a_cursor_are_one_endless_pass() -> None:
    assert Run("train").part_of(3, 8).position(3) == 24
    assert Run("train").place(29, 8) == (3, 5)
    assert [*Run("train").parts(3, 1 << 61)] == [(3, 1 << 61)]


def test_sizes_are_the_segments_or_the_cursors() -> None:
    assert Run("train").sizes(3) == Run.of(CURSOR).sizes(3) == (None, None)
    assert Run.of(replace(CURSOR, batch_size=4, world_size=2)).sizes(3) == (4, 2)
    run = Run.of(replace(AMENDED, batch_size=7, world_size=7))
    assert [run.sizes(step) for step in (9, 10)] == [(4, 2), (8, 2)]


def test_steps_of_a_run_with_segments() -> None:
    run = Run.of(AMENDED.to_json())
    for step, position in ((9, 72), (10, 80), (12, 112)):
        assert run.part_of(step, 1).position(step) == position
        assert run.place(position + 1, 1) == (step, 1)
    assert [run.at_step(step) for step in (9, 10)] == list(run.lineage)
    assert [*run.parts(8, 13)] == [(8, 10), (10, 13)]
    # The last segment's steps have had other sizes since step 14.
    run = Run.of(replace(AMENDED, course=Course(14, 144, 4), batch_size=2, world_size=2))
    assert [run.part_of(step, 1).position(step) for step in (9, 15)] == [72, 148]
    assert [run.sizes(step) for step in (9, 15)] == [(4, 2), (2, 2)]
    with pytest.raises(InvalidRequestError, match="step 10 lies before step 14, position 144"):
        run.part_of(10, 1)


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="step must be from 0"):
        Run("train").part_of(-1, 8)
