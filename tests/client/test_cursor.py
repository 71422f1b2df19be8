"""Cursor and shard plan: every position exactly once, from any cursor, for any world size."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.cursor import Cursor, Shard, ShardPlan
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.shared.spec import Guarantee, PipelineSpec, Remainder

worlds = st.integers(1, 5)
strides = st.integers(1, 7)
remainders = st.sampled_from(["drop", "pad"])


def plans(base: int, world: int, stride: int, total: int | None, remainder: Any) -> list[ShardPlan]:
    return [ShardPlan(base, Shard(rank, world), stride, total, remainder) for rank in range(world)]


def positions_of(plan: ShardPlan, steps: int) -> list[int]:
    """Returns the positions of the first steps of one rank."""
    positions: list[int] = []
    for step in range(steps):
        start, count = plan.batch_range(step)
        positions.extend(range(start, start + count))
    return positions


@examples(150)
@given(st.integers(0, 30), worlds, strides, st.integers(0, 120), remainders)
def test_ranks_take_every_position_exactly_once(
    base: int, world: int, stride: int, total: int, remainder: Remainder
) -> None:
    ranks = plans(base, world, stride, total, remainder)
    steps = ranks[0].steps
    assert steps is not None
    assert {plan.steps for plan in ranks} == {steps}
    positions = sorted(position for plan in ranks for position in positions_of(plan, steps))
    end = ranks[0].position_after(steps)
    assert positions == list(range(base, end))
    if remainder == "pad":
        assert end == max(base, total)
    else:
        assert 0 <= max(base, total) - end < world * stride
        assert all(plan.batch_range(step)[1] == stride for plan in ranks for step in range(steps))


@pytest.mark.parametrize(
    ("rank", "world", "message"),
    [
        (2, 2, "rank 2 is out of range.*0 to 1"),
        (-1, 1, "rank must be.*not -1"),
        (0, 0, "world_size.*not 0"),
    ],
)
def test_shard_out_of_range_is_rejected(rank: int, world: int, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Shard(rank, world)


CURSOR = Cursor("train", "ab12", 17, 640)
SPEC = PipelineSpec("train", (), (), (), 100, "ab12", Guarantee(), 8, 0, "drop", "raise")


def test_cursor_round_trips_through_json() -> None:
    state = CURSOR.to_json()
    assert Cursor.from_json(json.loads(json.dumps(state))) == CURSOR
    assert len(json.dumps(state)) < 500


def test_sizes_are_stated_and_bind_nothing() -> None:
    sized = Cursor("train", "ab12", 17, 640, batch_size=8, world_size=4)
    state = json.loads(json.dumps(sized.to_json()))
    assert (state["batch_size"], state["world_size"]) == (8, 4)
    read = Cursor.from_json({**state, "batch_size": np.int64(8)})
    assert (read.batch_size, read.world_size) == (8, 4)
    assert read == CURSOR
    assert CURSOR.to_json().keys().isdisjoint({"batch_size", "world_size"})


def test_cursor_accepts_numpy_scalars() -> None:
    state = {**CURSOR.to_json(), "position": np.int64(640), "seed": np.array(17)}
    cursor = Cursor.from_json(state)
    assert cursor == CURSOR
    json.dumps(cursor.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2.*reads version 1"),
        ({"seed": None}, "seed is None"),
        ({"seed": 1 << 63}, "seed is"),
        ({"position": -1}, "position is -1"),
        ({"position": (1 << 62) + 1}, r"position is 4611686018427387905, not .* to 2\^62"),
        ({"position": 1.5}, "position is 1.5"),
        ({"position": True}, "position is True"),
        ({"batch_size": 0}, "batch_size is 0, not an integer from 1"),
        ({"world_size": None}, "world_size is None, not an integer from 1 to 65536"),
        ({"colour": "red"}, "unknown keys: colour"),
    ],
)
def test_invalid_cursor_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CursorError, match=message):
        Cursor.from_json({**CURSOR.to_json(), **change})


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        (Cursor("test", "ab12", 17, 0), "pipeline is 'test', expected 'train'"),
        (
            Cursor("train", "ff", 17, 0),
            "'ff', expected 'ab12' .*whose random draws differ: finish",
        ),
        (
            Cursor("train", "abff", 17, 0),
            "is 'abff', .* data or TensorFlow version has changed",
        ),
        (Cursor("train", "ab12", 1, 0), "seed is 1, expected 17"),
        (Cursor("train", "ff", 1, 0), "seed is 1, expected 17; its fingerprint is 'ff'"),
    ],
)
def test_cursor_of_another_run_is_rejected(cursor: Cursor, message: str) -> None:
    CURSOR.check(SPEC, 17)
    with pytest.raises(CursorError, match=message):
        cursor.check(SPEC, 17)


def segment(step: int, start: int, **changes: Any) -> dict[str, Any]:
    """Returns the JSON of a segment of 100 samples."""
    names = {"pipeline": "train", "fingerprint": "ab12", "seed": 17}
    sizes = {"batch_size": 8, "world_size": 2, "sample_count": 100}
    place = {"epoch": 0, "offset": start, "epoch_end": 100, "shuffle": "global"}
    return {"step": step, "start": start, **names, **sizes, **place, **changes}


SEGMENTS = [segment(0, 0, fingerprint="old"), segment(5, 80)]


def test_segments_round_trip_through_json_and_scalars() -> None:
    state = {**CURSOR.to_json(), "segments": SEGMENTS}
    cursor = Cursor.from_json(state)
    assert cursor.to_json() == state
    scalars = [
        {key: value if isinstance(value, str) else np.array(value) for key, value in one.items()}
        for one in SEGMENTS
    ]
    assert Cursor.from_json({**state, "segments": scalars}) == cursor
    assert Cursor.from_json({**state, "segments": []}) == CURSOR
    cursor.check(SPEC, 17)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ({}, "list of at most 256, not {}"),
        ([segment(0, 0)] * 257, "257 segments"),
        ([7], "segment 0.*not a mapping"),
        ([segment(0, 0, other=1)], "segment 0 of the cursor has unknown keys: other"),
        ([segment(0, 0, shuffle=3)], "its shuffle is 3, not a valid str"),
        ([segment(0, True)], "its start is True, not a valid int"),
        ([segment(0, 0, batch_size=0)], "segment 0.*its batch_size is 0"),
        ([segment(0, 1 << 63)], "its start is"),
        ([segment(0, (1 << 62) + 1)], "its start is 4611686018427387905"),
        (
            [segment(5, 0)],
            "segment 0 .* begins at step 5 and position 0, and what is before it at 0",
        ),
        ([segment(0, 80)], "step 0 and position 80, and what is before it at 0 and 0"),
        ([segment(0, 0), segment(5, 80), segment(4, 64)], "segment 2 .* at step 4 and position 64"),
        ([segment(0, 0), segment(5, 81)], "position 81, and what is before it at 0 and 0, with 16"),
        ([segment(0, 0, batch_size=4), segment(5, 80)], "with 8 samples in a step; restore"),
        ([segment(0, 0, world_size=4), segment(5, 80)], "with 32 samples in a step; restore"),
        ([segment(0, 0, fingerprint="old")], "fingerprint is 'ab12'.*'old'"),
        ([segment(0, 0, seed=1)], "seed is 17.* 1;"),
        ([segment(0, 0, pipeline="other")], "pipeline is 'train'.*'other'"),
        ([segment(0, 0), segment(41, 656)], "640 lies before.*step 41.*connect with steps="),
    ],
)
def test_segments_that_do_not_fit_are_refused(segments: Any, message: str) -> None:
    with pytest.raises(CursorError, match=message):
        Cursor.from_json({**CURSOR.to_json(), "segments": segments})
