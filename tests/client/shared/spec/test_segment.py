"""Segments of a run: the ends of its epochs, and the epoch of each position."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.shared.errors import CursorError
from infeed.shared.spec.segment import Lineage, Segment, end_of_epochs, epoch_at


def segment(start: int, epoch: int, epoch_end: int, samples: int, **changes: Any) -> Segment:
    """Returns a segment of steps of one sample."""
    names: Any = {"pipeline": "p", "fingerprint": "f", "seed": 0, "shuffle": "global"}
    sizes = {"batch_size": 1, "world_size": 1, "sample_count": samples, "step": start, "offset": 0}
    return Segment(start=start, epoch=epoch, epoch_end=epoch_end, **names, **{**sizes, **changes})


# Epoch 0 has 10 samples, and 5 are added behind it; epoch 1 has 15, and is left out from its third
# on, as is all of epoch 2; then epochs have 12 of 15.
LINEAGE = (
    segment(0, 0, 10, 10),
    segment(6, 0, 10, 15, offset=6),
    segment(12, 3, 25, 15, removed=3, shrinks=True),
)
EPOCHS = [0] * 10 + [1] * 2 + [3] * 13 + [4] * 12 + [5] * 12


def test_the_epoch_of_each_position() -> None:
    assert [epoch_at(LINEAGE, position, 12) for position in range(len(EPOCHS))] == EPOCHS
    assert [epoch_at((), position, 3) for position in range(7)] == [0, 0, 0, 1, 1, 1, 2]


def test_the_end_of_each_epoch() -> None:
    ends = [end_of_epochs(LINEAGE, epochs, 12) for epochs in range(7)]
    assert ends == [sum(epoch < epochs for epoch in EPOCHS) for epochs in range(7)]
    assert [end_of_epochs((), epochs, 3) for epochs in range(3)] == [0, 3, 6]


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=5))
def test_an_epoch_ends_where_the_next_begins(changes: list[tuple[int, int]]) -> None:
    lineage: Lineage = (segment(0, 0, 5, 5),)
    samples = 5
    for steps, added in changes:
        start = lineage[-1].start + steps
        epoch, samples = epoch_at(lineage, start, samples), samples + added
        end = end_of_epochs(lineage, epoch + 1, lineage[-1].sample_count)
        lineage = (*lineage, segment(start, epoch, end, samples))
    for epochs in range(1, 60):
        end = end_of_epochs(lineage, epochs, samples)
        assert epoch_at(lineage, end - 1, samples) < epochs <= epoch_at(lineage, end, samples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": -1}, "its step is -1"),
        ({"step": True}, "its step is True"),
        ({"seed": 1 << 63}, "its seed is"),
        ({"shuffle": 3}, "its shuffle is 3"),
        ({"is_rest": True}, "within an epoch.*amend it at an epoch.s first step"),
        ({"colour": 1}, "unknown keys: colour"),
    ],
)
def test_a_wrong_segment_is_refused(changes: Any, message: str) -> None:
    value = {**LINEAGE[0].to_json(), **changes}
    with pytest.raises(CursorError, match=f"segment 4 of the cursor.*{message}"):
        Segment.from_json(value, 4)
    with pytest.raises(CursorError, match="segment 4 of the cursor is incomplete"):
        Segment.from_json({"step": 1}, 4)
