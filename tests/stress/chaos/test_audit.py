"""What the chaos concludes from: journals, checkpoints and counts of samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stress.chaos.audit import Audit, audit, whole_epochs
from tests.stress.chaos.journal import Journal, Step, committed

COUNT = 6


def step(number: int, start: int, ids: list[int], mask: list[bool] | None = None) -> Step:
    samples = [f"sample {index}" for index in ids]
    mask = mask or [True] * len(ids)
    cursor = {"position": start + len(ids)}
    return Step(number, start, ids, mask, samples, "digest", cursor, 0.0, 0.0)


EPOCHS = [step(0, 0, [3, 1, 2, 0]), step(1, 4, [5, 4, 0, 1]), step(2, 8, [2, 3, 5, 4])]


def test_an_exact_run() -> None:
    assert whole_epochs([EPOCHS], COUNT) == 2
    assert audit(EPOCHS, COUNT, 2) == Audit(2, 12, 0, 0)
    assert audit(EPOCHS, COUNT, 2).exact


def test_an_epoch_that_is_not_whole_is_not_counted() -> None:
    assert whole_epochs([EPOCHS[:2]], COUNT) == 1
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
def test_what_is_lost_or_repeated_is_found(steps: list[Step], expected: Audit) -> None:
    assert audit(steps, COUNT, 2) == expected
    assert not expected.exact


def test_nothing_is_not_exact() -> None:
    assert not audit([], COUNT, 0).exact


def test_a_step_counts_when_every_rank_has_saved_it(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / str(rank)) for rank in range(2)]
    for rank, taken in enumerate((3, 2)):
        for one in EPOCHS[:taken]:
            journals[rank].save(one)
    # Killed while it saved.
    (tmp_path / "1" / "00000002.json.part").write_text("{")
    assert [journal.taken for journal in journals] == [3, 2]
    assert committed(journals) == [EPOCHS[:2], EPOCHS[:2]]
    journals[0].finish({"hedges": 1})
    assert journals[0].summary == {"hedges": 1}
    assert journals[0].taken == 3
