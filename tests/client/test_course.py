"""Courses: the position of each step of a run, through passes, resumes and changes of its sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.client.plans import plan_of

from infeed.course import Course
from infeed.cursor import Cursor, Shard
from infeed.run import Run
from infeed.shared.errors import CursorError, InvalidRequestError

SAMPLES = 50


class Training:
    """The cursor of a training, and the positions of its steps as they were taken."""

    def __init__(self) -> None:
        self.state: Any = None
        self.starts: list[int] = []

    def feed(self, steps: int | None = None, **options: Any) -> None:
        """Takes steps of a feed that goes on; None: all of them."""
        plan = plan_of(state=self.state, **options)
        assert plan.course.steps_at(plan.shard_plan.base) == len(self.starts)
        taken = steps if steps is not None else plan.shard_plan.steps or 0
        self.starts += [plan.shard_plan.step_end(step - 1) for step in range(taken)]
        self.save(plan.cursor_at(plan.shard_plan.position_after(taken)))

    def save(self, cursor: Cursor) -> None:
        self.state = json.loads(json.dumps(cursor.to_json()))

    def begin_pass(self, epoch: int) -> None:
        """Goes on where an epoch begins, as a dataset of passes of one epoch."""
        cursor = Cursor.from_json(self.state)
        assert cursor.course is not None
        length = SAMPLES if cursor.course.end else None
        cursor = replace(cursor, course=replace(cursor.course, length=length))
        self.save(cursor.moved_to(epoch * SAMPLES))

    def check(self, first: int = 0) -> Run:
        """Asserts that the cursor tells its steps from the first on, and none before."""
        run = Run.of(self.state)
        for step, start in enumerate(self.starts[first:], first):
            part = run.part_of(step, 1)
            assert part.position(step) == start
            last = min(part.stride, (part.end or 1 << 62) - start) - 1
            assert run.place(start, 1) == (step, 0)
            assert run.place(start + last, 1) == (step, last)
        if first:
            with pytest.raises(InvalidRequestError, match="give a cursor saved before that"):
                run.part_of(first - 1, 1)
        return run


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_one_feed(epochs: int, remainder: str, ranks: int) -> None:
    training = Training()
    options = {"epochs": epochs, "remainder": remainder, "shard": Shard(0, ranks)}
    training.feed(3, **options)
    training.feed(**options)
    run, steps = training.check(), len(training.starts)
    with pytest.raises(
        InvalidRequestError, match=f"no step {steps}: it ends with step {steps - 1},"
    ):
        run.part_of(steps, 1)
    # More epochs begin where the last batch ended, whether it was full or not.
    training.feed(4, epochs=epochs + 2, remainder=remainder, shard=Shard(0, ranks))
    padded = remainder == "pad" and epochs * SAMPLES % (4 * ranks)
    training.check(steps if padded else 0)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("batch_size", [4, 5])
def test_passes(batch_size: int, remainder: str, ranks: int) -> None:
    training = Training()
    options = {"remainder": remainder, "batch_size": batch_size, "shard": Shard(0, ranks)}
    for epoch in range(4):
        if epoch:
            training.begin_pass(epoch)
        training.feed(2, epochs=epoch + 1, **options)
        training.feed(epochs=epoch + 1, **options)
    run, steps = training.check(), len(training.starts)
    training.begin_pass(4)
    assert training.check().cursor == replace(run.cursor, position=4 * SAMPLES)
    # Steps to come lie in passes, too.
    assert run.part_of(steps, 1).position(steps) == 4 * SAMPLES
    length = steps // 4
    assert [*run.parts(length - 1, 2 * length + 1)] == [
        (length - 1, length),
        (length, 2 * length),
        (2 * length, 2 * length + 1),
    ]
    assert len(json.dumps(training.state)) < 400


def test_a_change_of_sizes_within_a_pass_and_passes_behind_it() -> None:
    training = Training()
    training.feed(5, epochs=1, batch_size=6)
    training.feed(epochs=1, batch_size=5, shard=Shard(1, 2))
    for epoch in (1, 2):
        training.begin_pass(epoch)
        training.feed(epochs=epoch + 1, batch_size=5, shard=Shard(1, 2))
    run = training.check(5)
    assert len(training.starts) == 5 + 2 + 2 * 5
    assert run.sizes(5) == (5, 2)
    # As many samples, on other ranks.
    training.feed(1, epochs=4, batch_size=10)
    training.check(len(training.starts) - 1)


def test_a_pass_that_was_left_is_no_part_of_the_course() -> None:
    training = Training()
    training.feed(3, epochs=1)
    training.begin_pass(1)
    training.feed(epochs=2)
    training.begin_pass(2)
    training.feed(3, epochs=3)
    training.check(3)
    # As on again with the first pass.
    training.begin_pass(0)
    training.feed(2, epochs=1)
    training.check(len(training.starts) - 2)


def test_samples_that_a_pass_leaves_out_are_in_no_step() -> None:
    course = Course(0, 0, 8, end=50, length=50)
    assert [course.place(position) for position in (47, 48, 49, 50)] == [(5, 7), None, None, (6, 0)]
    assert [course.steps_at(position) for position in (48, 50, 51)] == [6, 6, 7]
    assert Course(3, 60, 8).place(59) is None
    with pytest.raises(InvalidRequestError, match="no step 0"):
        Course(0, 0, 80, end=50, length=50).part_of(0)


def test_a_cursor_without_a_course_tells_the_steps_to_come() -> None:
    """A feed counts on by itself from a cursor of infeed 0.1."""
    training = Training()
    training.state = {"version": 1, "pipeline": "fake", "seed": 0, "position": 39}
    training.state["fingerprint"] = plan_of().spec.fingerprint
    with pytest.raises(InvalidRequestError, match=r'add to it: "course": \{"step": 0, '):
        Run.of(training.state).part_of(20, 1)
    training.starts = [0] * 9
    training.feed(3)
    assert training.check(9).part_of(9, 1).position(9) == 39


@pytest.mark.parametrize(
    ("course", "message"),
    [
        (7, "7 lacks a step, start or stride"),
        ({"step": 1, "start": 0}, "lacks a step"),
        ({"step": 1, "start": 0, "stride": 0}, "its stride must be from 1"),
        ({"step": 1, "start": 0, "stride": 4, "length": 0}, "its length must be from 1"),
        ({"step": 1, "start": -1, "stride": 4}, "its start must be from 0"),
        ({"step": True, "start": 1, "stride": 4}, "its step must be an integer"),
        ({"step": 1, "start": 1, "stride": 4, "more": 1}, "unknown keys: more"),
    ],
)
def test_wrong_courses_are_refused(course: Any, message: str) -> None:
    with pytest.raises(CursorError, match=f"course is not valid: .*{message}.*as it was saved"):
        Cursor.from_json({**Cursor("p", "f", 1, 8).to_json(), "course": course})
