"""The count of delivered samples by epoch and id."""

from __future__ import annotations

from collections import Counter

from tests.e2e.deliveries import Deliveries, Slot, count

SAMPLES, EPOCHS = 3, 2


def whole() -> list[Slot]:
    """Every sample of every epoch once: its id, and a key that differs in every epoch."""
    return [(sample, 100 * epoch + sample) for epoch in range(EPOCHS) for sample in range(SAMPLES)]


def test_a_complete_delivery_has_neither_losses_nor_repeats() -> None:
    assert count(reversed(whole()), SAMPLES, EPOCHS) == Deliveries(lost=0, repeated=0)


def test_a_repeat_is_counted_beside_a_loss_of_the_same_sample_in_another_epoch() -> None:
    seen = whole()
    seen[seen.index((1, 101))] = (1, 1)
    per_sample = Counter(sample for sample, _ in seen)
    assert per_sample == dict.fromkeys(range(SAMPLES), EPOCHS), "sums per sample show nothing"
    assert count(seen, SAMPLES, EPOCHS) == Deliveries(lost=1, repeated=1)


def test_each_delivery_beyond_the_first_is_a_repeat() -> None:
    assert count([*whole(), (0, 0), (0, 0)], SAMPLES, EPOCHS) == Deliveries(lost=0, repeated=2)


def test_slots_that_the_job_does_not_have_make_up_for_no_loss() -> None:
    foreign_id, third_epoch = (SAMPLES, 3), (0, 200)
    seen = [*whole()[1:], foreign_id]
    assert count(seen, SAMPLES, EPOCHS) == Deliveries(lost=1, repeated=0, unknown=1)
    assert count([*whole(), third_epoch], SAMPLES, EPOCHS) == Deliveries(0, 0, unknown=1)
