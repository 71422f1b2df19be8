"""The arithmetic of `infeed when`: positions as steps, ranks and slots."""

from __future__ import annotations

import random

from infeed.course import Course
from infeed.cursor import Cursor
from infeed.run import Run
from infeed.shared.spec.segment import Segment
from infeed_runs.look.when import place


def segment(step: int, start: int, batch_size: int, world_size: int) -> Segment:
    return Segment(step, start, "p", "f", 1, batch_size, world_size, 0, 0, 900, 900, "none")


def test_places_are_the_inverse_of_positions() -> None:
    segments = (segment(0, 0, 4, 2), segment(10, 80, 3, 5), segment(30, 380, 8, 1))
    rng = random.Random(0)
    for run in (
        Run("p"),
        Run.of(Cursor("p", "f", 1, 77, course=Course(0, 5, 18, end=1000, length=990))),
        Run.of(Cursor("p", "f", 1, 500, segments=segments)),
    ):
        for _ in range(1000):
            step = rng.randrange(100)
            at = run.at_step(step) or segment(0, 0, 6, 3)
            rank, slot = rng.randrange(at.world_size), rng.randrange(at.batch_size)
            sizes = at.batch_size, at.world_size
            part = run.part_of(step, sizes[0] * sizes[1])
            position = part.position(step) + rank * sizes[0] + slot
            assert place(run, position, *sizes) == (step, rank, slot)


def test_positions_in_no_step_that_the_cursor_tells_have_no_place() -> None:
    run = Run.of(Cursor("p", "f", 1, 77, course=Course(2, 5, 18, end=40)))
    assert [place(run, position, 6, 3) for position in (4, 5, 22, 23)] == [
        None,
        (2, 0, 0),
        (2, 2, 5),
        None,
    ]
