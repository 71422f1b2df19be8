"""Journals, committed steps and sample counts of the chaos runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stress.chaos.audit import Audit, audit, complete_epochs
from tests.stress.chaos.journal import Journal, Step, committed_steps

COUNT = 6


def step(number: int, start: int, ids: list[int], mask: list[bool] | None = None) -> Step:
    samples = [f"sample {index}" for index in ids]
    mask = mask or [True] * len(ids)
    cursor = {"position": start + len(ids)}
    return Step(number, start, ids, mask, samples, "digest", cursor, 0.0)


EPOCHS = [step(0, 0, [3, 1, 2, 0]), step(1, 4, [5, 4, 0, 1]), step(2, 8, [2, 3, 5, 4])]


def test_complete_epochs_are_exact() -> None:
    assert complete_epochs([EPOCHS], COUNT) == 2
    assert audit(EPOCHS, COUNT, 2) == Audit(2, 12, 0, 0)
    assert audit(EPOCHS, COUNT, 2).exact


def test_incomplete_epoch_is_not_counted() -> None:
    assert complete_epochs([EPOCHS[:2]], COUNT) == 1
    assert audit(EPOCHS[:2], COUNT, 1) == Audit(1, 6, 0, 0)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([*EPOCHS, EPOCHS[1]], Audit(2, 16, 0, 4)),
        (EPOCHS[:2], Audit(2, 8, 4, 0)),
        ([*EPOCHS[:2], step(2, 8, [2, 3, 5, 5])], Audit(2, 12, 1, 1)),
        ([*EPOCHS[:2], step(2, 8, [2, 3, 5, -1], [True, True, True, False])], Audit(2, 11, 1, 0)),
    ],
)
def test_lost_and_repeated_samples_are_counted(steps: list[Step], expected: Audit) -> None:
    assert audit(steps, COUNT, 2) == expected
    assert not expected.exact


def test_audit_without_steps_is_not_exact() -> None:
    assert not audit([], COUNT, 0).exact


def test_step_saved_by_every_rank_is_committed(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / str(rank)) for rank in range(2)]
    for rank, count in enumerate((3, 2)):
        for saved in EPOCHS[:count]:
            journals[rank].save(saved)
    # A rank killed while saving leaves a partial file.
    (tmp_path / "1" / "00000002.json.part").write_text("{")
    assert [journal.step_count for journal in journals] == [3, 2]
    assert committed_steps(journals) == [EPOCHS[:2], EPOCHS[:2]]
    journals[0].finish({"hedges": 1})
    assert journals[0].summary == {"hedges": 1}
    assert journals[0].step_count == 3
