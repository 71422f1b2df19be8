"""Plans of amended runs and of steps that are read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.client.plans import fake_spec, plan_of
from tests.client.runs import AmendedFake, amended_run, ids_at

import infeed
from infeed import testing
from infeed.course import Course
from infeed.cursor import Cursor, Shard
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.served_plan import served_plan
from infeed.shared.errors import FingerprintError, InvalidRequestError, ProtocolError
from infeed.shared.spec import Guarantee
from infeed.shared.spec.segment import end_of_epochs, lineage_from_proto

OLD, NEW, CURSOR = amended_run()


@pytest.fixture(autouse=True)
def _with_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_refuse_segments", lambda _: None)


def read(address: str, pipeline: str = "new", **options: Any) -> list[list[int]]:
    """Returns the sample ids of each batch."""
    with infeed.connect(address, pipeline, **options) as feed:
        batches = [(batch, batch.sample_ids.tolist()) for batch in feed]
        assert all((batch["x"] == np.maximum(ids, 0)).all() for batch, ids in batches)
        assert not feed.endless
        assert feed.steps == len(feed) == len(batches)
        return [ids for _, ids in batches]


def test_an_amended_run_goes_on_with_its_segments() -> None:
    plan = plan_of(NEW.spec, state=CURSOR.to_json(), batch_size=6, epochs=3)
    assert lineage_from_proto(plan.contract.opening.lineage) == CURSOR.segments
    assert plan.cursor_at(116) == replace(CURSOR, position=116)
    # Epoch 1 ends at 1000, and the third has 50 samples.
    assert plan.shard_plan.position_count == end_of_epochs(CURSOR.segments, 3, 50) == 1050
    with infeed.connect("-", "new", state=CURSOR, batch_size=6, transport=NEW) as feed:
        assert feed.first_step == 15
        assert next(feed).sample_ids.tolist() == ids_at(CURSOR.segments, 110, 6).tolist()
        course = Course(10, 80, 6)
        state = replace(CURSOR, position=116, batch_size=6, world_size=1, course=course).to_json()
        assert feed.state() == state
        assert feed.endless


def test_a_definition_that_skips_steps_has_its_own_ends() -> None:
    first, second = CURSOR.segments
    spec = replace(fake_spec(), lineage=(first, replace(second, epoch_end=120)))
    plan = plan_of(spec, epochs=3)
    assert plan.shard_plan.position_count == 170
    assert not plan.contract.opening.HasField("lineage")
    assert plan.cursor_at(8).segments == ()


def test_steps_of_each_segment_are_read_again(serve: Any) -> None:
    address = serve(OLD, NEW).address
    expected = [ids_at(CURSOR.segments, 8 * step + 4, 4).tolist() for step in (2, 3, 4)]
    assert read(address, state=CURSOR, shard=Shard(1, 2), steps=(2, 5)) == expected
    # Without options it is rank 0 of the segment's ranks.
    expected = [ids_at(CURSOR.segments, 72, 4).tolist()]
    assert read(address, state=CURSOR, steps=(9, 10)) == expected
    expected = [ids_at(CURSOR.segments, 80 + 6 * step, 6).tolist() for step in range(3)]
    assert read(address, state=CURSOR, steps=(10, 13)) == expected
    # Another world size that fits.
    assert read(address, state=CURSOR, steps=(10, 13), batch_size=9, shard=Shard(1, 2)) == [
        ids_at(CURSOR.segments, 89, 9).tolist()
    ]


def test_steps_of_a_run_without_segments() -> None:
    fake = AmendedFake({"x": np.arange(50)}, batch_size=4)
    state = Cursor("fake", fake.spec.fingerprint, 0, 645, course=Course(10, 85, 8)).to_json()
    options: dict[str, Any] = {"shard": Shard(1, 2), "transport": fake}
    padded: dict[str, Any] = {"epochs": 2, "remainder": "pad"}
    got = read("-", "fake", state=state, steps=(11, 13), **options)
    assert got == [ids_at((), 85 + 8 * step + 4, 4).tolist() for step in (1, 2)]
    # A cursor's own sizes are the defaults, and its passes end where they did.
    course = Course(0, 0, 10, end=47, length=50, pads=True).to_json()
    sized = {**state, "batch_size": 5, "world_size": 2, "course": course}
    got = read("-", "fake", state=sized, steps=(1, 2), transport=fake)
    assert got == [ids_at((), 10, 5).tolist()]
    got = read("-", "fake", state=sized, steps=(4, 5), transport=fake, shard=Shard(1, 2))
    assert got == [[*ids_at((), 45, 2).tolist(), -1, -1, -1]]
    got = read("-", "fake", state=sized, steps=(5, 7), transport=fake)
    assert got == [ids_at((), 47 + start, 5).tolist() for start in (0, 10)]
    got = read("-", "fake", steps=(1, 3), seed=7, **options)
    assert got == [ids_at((), 8 * step + 4, 4).tolist() for step in (1, 2)]
    # The last step of two epochs has four samples, and this rank none of them.
    got = read("-", "fake", steps=(12, 13), **padded, **options)
    assert got == [[-1] * 4]
    got = read(
        "-", "fake", steps=(24, 25), epochs=2, remainder="pad", transport=fake, shard=Shard()
    )
    assert got == [ids_at((), 96, 4).tolist()]


def test_the_first_step_and_no_state_of_steps(serve: Any) -> None:
    address = serve(OLD, NEW).address
    for steps in ((2, 5), (12, 13)):
        with infeed.connect(address, "new", state=CURSOR, steps=steps) as feed:
            assert feed.first_step == steps[0]
            with pytest.raises(InvalidRequestError, match=r"steps .* has no state"):
                feed.state()
            with feed.again() as again:
                assert again.first_step == steps[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": (8, 12), "state": CURSOR}, r"several passes or segments.*\(8, 10\)"),
        ({"steps": (2, 3), "state": CURSOR, "batch_size": 3}, "take 6 samples in a step.*these 8"),
        ({"steps": (20, 30), "epochs": 2}, "with epochs=2 the run has 5 of these 10 steps"),
        ({"steps": (90, 91), "epochs": 2}, "the run has 0 of these 1"),
    ],
)
def test_steps_that_the_run_has_not_are_refused(options: Any, message: str) -> None:
    transport = OLD if "state" in options else AmendedFake({"x": np.arange(50)}, batch_size=4)
    with pytest.raises(InvalidRequestError, match=message):
        served_plan(transport, transport.name, FeedOptions(**options))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"guarantee": Guarantee("none", "at_most_once", "none")}, {}, "guarantees no order"),
        ({"sample_count": None}, {"epochs": 1}, "number of samples is unknown"),
    ],
)
def test_steps_of_a_pipeline_that_cannot_repeat_them(
    changes: Any, options: Any, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        plan_of(replace(fake_spec(), **changes), steps=(0, 1), **options)


@pytest.mark.parametrize(
    "steps", [(), (1,), (1, 2, 3), 7, "1:2", (2, 2), (3, 2), (-1, 2), (0, 1 << 63), (0.5, 1)]
)
def test_what_is_no_range_of_steps_is_refused(steps: Any) -> None:
    with pytest.raises(InvalidRequestError, match="steps must be"):
        FeedOptions(steps=steps)


def test_old_segments_are_served_under_any_name(serve: Any) -> None:
    renamed, new, cursor = amended_run("renamed")
    expected = [ids_at(cursor.segments, 0, 4).tolist()]
    assert read(serve(renamed, new).address, state=cursor, steps=(0, 1)) == expected
    # The pipeline that is asked for is gone.
    assert read(serve(renamed).address, state=cursor, steps=(0, 1)) == expected
    with pytest.raises(FingerprintError, match=r"no pipeline has the fingerprint .*'new' has"):
        read(serve(new).address, state=cursor, steps=(0, 1))
    old = replace(cursor.segments[0], fingerprint=f"04{'f' * 30}")
    cursor = replace(cursor, segments=(old, *cursor.segments[1:]))
    with pytest.raises(
        FingerprintError, match="with other random draws made it: use servers of that v"
    ):
        read(serve(new).address, state=cursor, steps=(0, 1))


def test_a_server_that_does_not_read_segments_is_refused(serve: Any) -> None:
    _, new, cursor = amended_run()
    opened = new._opened

    def without_segments(opening: Any) -> Any:
        message = opened(opening)
        message.opened.ClearField("segments")
        return message

    new._opened = without_segments  # type: ignore[method-assign]
    with (
        infeed.connect(serve(new).address, "new", state=cursor, batch_size=6) as feed,
        pytest.raises(ProtocolError, match=r"number of segments \(0, not 2\).*same version"),
    ):
        next(feed)
